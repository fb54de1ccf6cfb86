"""Random H and A of every kind, for the property tests. None of them is symmetric by accident."""

from __future__ import annotations

import math

import torch
from hypothesis import strategies as st
from torch import Tensor

H_KINDS = (
    "general", "symmetric", "sharpening", "smoothing", "eigen-sharpening", "eigen-mixed", "rotation", "repeated",
    "low-rank", "defective", "triangular",
)  # fmt: skip
A_KINDS = ("softmax", "sharp", "uniform", "causal", "banded", "blocks", "symmetrisable", "sink")


def make_h(kind: str, dim: int, g: torch.Generator) -> Tensor:
    """One H, in float64."""
    noise = torch.randn(dim, dim, generator=g, dtype=torch.float64)
    basis = torch.randn(dim, dim, generator=g, dtype=torch.float64) + 2 * torch.eye(dim, dtype=torch.float64)
    q = torch.linalg.qr(noise).Q
    unit = torch.rand(dim, generator=g, dtype=torch.float64)
    if kind == "general":
        return noise / dim**0.5
    if kind == "symmetric":
        return (noise + noise.T) / dim**0.5
    if kind in ("sharpening", "smoothing"):
        return q * (unit if kind == "smoothing" else -unit) @ q.T
    if kind in ("eigen-sharpening", "eigen-mixed", "repeated"):
        values = {"eigen-sharpening": -unit, "eigen-mixed": 4 * unit - 2, "repeated": -1.5 + 2 * (unit > 0.5).double()}
        return basis * values[kind] @ torch.linalg.inv(basis)
    if kind == "rotation":
        return (noise - noise.T) / dim**0.5 - 0.3 * torch.eye(dim, dtype=torch.float64)
    if kind == "low-rank":
        keep = max(dim // 2, 1)
        return noise[:, :keep] @ basis[:keep] / dim
    if kind == "defective":
        jordan = torch.diag_embed(torch.full((dim,), -0.7, dtype=torch.float64))
        jordan[0, 1 % dim] = jordan[0, 1 % dim] + (0.5 if dim > 1 else 0.0)
        return q @ jordan @ q.T
    return noise.triu() / 2


def make_a(kind: str, n: int, g: torch.Generator) -> Tensor:
    """One row-stochastic A, in float64."""
    logits = torch.randn(n, n, generator=g, dtype=torch.float64)
    if kind == "softmax":
        return torch.softmax(2 * logits, -1)
    if kind == "sharp":
        return torch.softmax(8 * logits, -1)
    if kind == "uniform":
        return torch.full((n, n), 1 / n, dtype=torch.float64)
    if kind == "causal":
        return torch.softmax(logits.masked_fill(torch.ones(n, n).triu(1).bool(), -torch.inf), -1)
    if kind == "banded":
        far = (torch.arange(n)[:, None] - torch.arange(n)).abs() > 1
        return torch.softmax(logits.masked_fill(far, -torch.inf), -1)
    if kind == "blocks":  # reducible: the eigenvalue 1 twice
        half = torch.arange(n) < (n + 1) // 2
        return torch.softmax(logits.masked_fill(half[:, None] != half, -torch.inf), -1)
    if kind == "symmetrisable":  # similar to a symmetric matrix: a real spectrum
        return torch.softmax(logits + logits.T, -1)
    logits[:, 0] += 4  # every token looks at the first
    return torch.softmax(logits, -1)


@st.composite
def problems(draw: st.DrawFn, h_kinds: tuple[str, ...] = H_KINDS, a_kinds: tuple[str, ...] = A_KINDS):
    """(h, a, x0) with 2–7 tokens and 1–6 features."""
    g = torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1)))
    n, dim = draw(st.integers(2, 7)), draw(st.integers(1, 6))
    h, a = make_h(draw(st.sampled_from(h_kinds)), dim, g), make_a(draw(st.sampled_from(a_kinds)), n, g)
    return h, a, torch.randn(n, dim, generator=g, dtype=torch.float64)


def random_layer(batch: int, heads: int, n: int, dim: int, key: int) -> tuple[Tensor, Tensor, Tensor]:
    """Attention, value and projection weights of all heads."""
    attention = torch.softmax(2 * torch.randn(batch, heads, n, n, dtype=torch.float64), -1)
    w_v = torch.randn(heads, dim, key, dtype=torch.float64) / dim**0.5
    w_proj = torch.randn(heads, key, dim, dtype=torch.float64) / key**0.5
    return attention, w_v, w_proj


def causal_layer(batch: int, heads: int, n: int, dim: int) -> tuple[Tensor, Tensor]:
    """Attention to earlier tokens only, and the products of value and projection weights."""
    scores = 2 * torch.randn(batch, heads, n, n, dtype=torch.float64)
    attention = scores.masked_fill(torch.ones(n, n).triu(1).bool(), -math.inf).softmax(-1)
    return attention, torch.randn(heads, dim, dim, dtype=torch.float64) / dim**0.5
