"""Slow, obvious twins of the fast routines, by topic. Tests run both."""

from __future__ import annotations

import math

import torch
from torch import Tensor

# --- explain: dense matrices where the library is matrix-free or works on spectra ---


def update_matrix(h: Tensor, a: Tensor, residual: bool = True) -> Tensor:
    """`I + H ⊗ A` of eq. (2), acting on columns stacked under each other."""
    product = torch.kron(h.contiguous(), a.contiguous())
    return torch.eye(len(product), dtype=product.dtype) + product if residual else product


def iterate_by_squaring(h: Tensor, a: Tensor, x: Tensor, doublings: int = 45, residual: bool = True) -> Tensor:
    """The direction of X after 2^doublings layers, from the dense matrix of eq. (2) alone."""
    power = update_matrix(h, a, residual)
    for _ in range(doublings):
        power = power @ power
        power = power / power.norm()
    stacked = power @ x.T.reshape(-1)  # vec stacks columns
    return (stacked / stacked.norm()).reshape(x.shape[1], x.shape[0]).T


def left_fixed_vector(a: Tensor) -> Tensor:
    """A row vector π with π A = π and π·1 = 1; π X is the type (1) amplitude, which evolves on its own."""
    n = len(a)
    system = torch.cat([a.T - torch.eye(n, dtype=a.dtype), torch.ones(1, n, dtype=a.dtype)])
    target = torch.zeros(n + 1, 1, dtype=a.dtype)
    target[-1] = 1
    return torch.linalg.lstsq(system, target, driver="gelsd").solution[:, 0]


def iterated_verdict(h: Tensor, a: Tensor, x: Tensor, margin: float, residual: bool = True) -> str:
    """Smoothing, sharpening or mixed, as enough layers show it for terms that differ by `margin` nats per layer.

    Not more than needed: the powers of a defective matrix lose their leading term to rounding in the end.
    """
    doublings = min(max(math.ceil(math.log2(max(400 / margin, 1))), 8), 45)
    end = iterate_by_squaring(h, a, x, doublings, residual)
    high = float((end - end.mean(0)).norm())
    perron = float((left_fixed_vector(a) @ end).norm())
    if high < 1e-6:
        return "smoothing"
    return "sharpening" if perron < 1e-6 else "mixed"


def dense_layer_growth(attention: Tensor, weights: Tensor, scale: float = 1.0) -> tuple[float, float]:
    """(ρ_L, ρ_H) of `X + s Σ A_h X W_h`, from the (n−1)d × (n−1)d matrix on the space orthogonal to 1."""
    n, dim = attention.shape[-1], weights.shape[-1]
    ones = torch.ones(n, 1, dtype=attention.dtype)
    basis = torch.linalg.qr(torch.cat([ones, torch.eye(n, dtype=attention.dtype)[:, 1:]], 1)).Q[:, 1:]
    high = torch.eye((n - 1) * dim, dtype=attention.dtype)
    low = torch.eye(dim, dtype=attention.dtype)
    for a, w in zip(attention, weights, strict=True):
        high = high + scale * torch.kron(w.T.contiguous(), basis.T @ a @ basis)
        low = low + scale * w
    return float(torch.linalg.eigvals(low).abs().max()), float(torch.linalg.eigvals(high).abs().max())


def ranks_with_ties(values: list[float]) -> list[float]:
    """Average ranks, by counting."""
    return [sum(v < x for v in values) + (sum(v == x for v in values) + 1) / 2 for x in values]


# --- control ---


def householder_q(theta: Tensor) -> Tensor:
    """Q of a QR decomposition whose R has a positive diagonal, by LAPACK."""
    q, r = torch.linalg.qr(theta)
    return q * r.diagonal(dim1=-2, dim2=-1).sign()[..., None, :]
