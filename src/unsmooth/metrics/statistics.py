"""Sufficient statistics: what is left of features when only Gram-like metrics are wanted, small enough to wait.

On a GPU many points are reduced together by two launches. Where singular values are wanted, HFC[X] is
formed and the Gram matrix is that of HFC, so that its digits are relative to HFC's size, not to X's.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from unsmooth.metrics.features import Features, inverse_or_zero, keep, rescaled, safe_norms, to_float64, units
from unsmooth.metrics.kernels.reduce import Reduced, cuda_reduce
from unsmooth.metrics.spectrum import NEARLY_RANK_ONE, EigenProblem, symmetric_product

GRAM_CHUNK = 1 << 24  # features that are in float64 at a time on their way into a Gram matrix
CPU_CHUNK = 1 << 20  # the same on a CPU, whose cache is small and whose calls cost little

Factors = tuple[list[Tensor], list[Tensor]]  # columns of what is added to a Gram matrix: left · rightᵀ


@dataclass(frozen=True)
class Statistics:
    """Of X = HFC + 1x̄ᵀ: what norms and cosines follow from and, with the last two, its singular values."""

    mask: Bool[Tensor, "batch token"]
    norms: Float[Tensor, "batch token"]
    mean: Float[Tensor, "batch dim"]
    hfc_square: Float[Tensor, " batch"]  # ‖HFC‖_F²
    unit_sum_square: Float[Tensor, " batch"]  # ‖Σ x_i/‖x_i‖‖²
    scale: Float[Tensor, " batch"]  # what the features were divided by
    cross: Float[Tensor, "batch token"]  # HFC·x̄
    high: Float[Tensor, "batch side side"] | None = None  # HFC·HFCᵀ if tokens ≤ dim, else HFCᵀ·HFC

    @classmethod
    def of(cls, x: Float[Tensor, "batch token dim"], mask: Bool[Tensor, "batch token"] | None) -> Statistics:
        """Reduce tokens of any float dtype, without the Gram matrix."""
        known = x.new_ones(1, 1, dtype=torch.bool).expand(x.shape[:-1]) if mask is None else mask
        x, scale = rescaled(keep(x, mask), x.dtype) if x.dtype == torch.float64 else (x, _ones(x))
        found = cuda_reduce(x, mask) if x.is_cuda and _kernel_agrees(x.dtype, x.shape[-1], x.device) else None
        norms, mean, squares, cross, unit_sum = found or reduce_tokens(x, mask)
        return cls(known, norms, mean, squares.sum(-1), unit_sum.square().sum(-1), scale, cross)

    def with_gram(self, x: Float[Tensor, "batch token dim"], masked: bool) -> Statistics:
        """The same with the Gram matrix, from the tokens that they are of, of which few are in float64 at a time."""
        if x.dtype == torch.float64:
            x, _ = rescaled(keep(x, self.mask), x.dtype)
        axis = 1 if x.shape[1] > x.shape[2] else 2  # the one that is summed over
        step = max(1, chunk(x.device) * x.shape[axis] // x.numel())
        high = None
        for part in range(0, x.shape[axis], step):
            rows, columns = (slice(part, part + step), slice(None))[:: 1 if axis == 1 else -1]
            centred = x[:, rows, columns] - self.mean[:, None, columns]  # float64, as the mean is
            centred = keep(centred, self.mask[:, rows] if masked else None)
            left = centred.mT if axis == 1 else centred
            if high is None:
                high = symmetric_product(left)
            elif x.is_cuda:
                high.baddbmm_(left, left.mT)
            else:
                high += symmetric_product(left)
        return replace(self, high=high)

    def __getitem__(self, chosen: Any) -> Statistics:
        """Of some samples."""
        picked: list[Any] = [None if (x := getattr(self, f.name)) is None else x[chosen] for f in fields(self)]
        return Statistics(*picked)

    @classmethod
    def cat(cls, parts: Sequence[Statistics]) -> Statistics:
        """Several points as one batch; with Gram matrices if all have them."""
        columns = [[getattr(part, f.name) for part in parts] for f in fields(cls)]
        joined: list[Any] = [None if any(x is None for x in column) else torch.cat(column) for column in columns]
        return cls(*joined)

    @property
    def nbytes(self) -> int:
        """How much memory they hold."""
        return sum(x.nbytes for f in fields(self) if (x := getattr(self, f.name)) is not None)


def reduce_tokens(x: Float[Tensor, "batch token dim"], mask: Bool[Tensor, "batch token"] | None) -> Reduced:
    """What cuda_reduce does, by torch alone, with few tokens in float64 at a time."""
    step = max(1, chunk(x.device) * x.shape[-2] // x.numel())
    parts = [slice(start, start + step) for start in range(0, x.shape[-2], step)]

    def wide(part: slice) -> tuple[Tensor, Tensor | None]:
        own = None if mask is None else mask[:, part]
        return to_float64(keep(x[:, part], own)), own

    norms, sums = [], []
    for part in parts:
        kept, _ = wide(part)
        if x.dtype == torch.float64:
            norms.append(safe_norms(kept))
            unit_sum = units(kept).sum(-2)
        else:  # from the tokens themselves: HFC + x̄ has lost the digits of one that is short beside x̄
            norms.append(torch.linalg.vector_norm(kept, dim=-1))
            unit_sum = (inverse_or_zero(norms[-1])[..., None, :] @ kept)[..., 0, :]
        sums.append(torch.stack([kept.sum(-2), unit_sum]))
    total, unit_sum = torch.stack(sums).sum(0)
    mean = total / (x.shape[-2] if mask is None else mask.sum(-1, keepdim=True))
    squares, cross = [], []
    for part in parts:
        kept, own = wide(part)
        high = keep(kept - mean[..., None, :], own)
        squares.append(high.square().sum(-1))
        cross.append((high @ mean[..., None])[..., 0])
    return torch.cat(norms, -1), mean, torch.cat(squares, -1), torch.cat(cross, -1), unit_sum


def chunk(device: torch.device) -> int:
    """Features that are in float64 at a time on this device."""
    return CPU_CHUNK if device.type == "cpu" else GRAM_CHUNK


@cache
def _kernel_agrees(dtype: torch.dtype, dim: int, device: torch.device) -> bool:
    """Whether the kernel gives what torch gives, tried once for each kind of features: a driver may be new to it."""
    if dtype == torch.float64:
        return False
    own = torch.Generator(device).manual_seed(0)
    x = (torch.randn(2, 70, dim, generator=own, device=device) + 1).to(dtype)
    mask = torch.rand(2, 70, generator=own, device=device) < 0.7
    for kept in (None, mask):
        found = cuda_reduce(x, kept)
        pairs = () if found is None else zip(found, reduce_tokens(x, kept), strict=True)
        if found is None or not all(torch.allclose(a, b, rtol=1e-9, atol=1e-9) for a, b in pairs):
            if found is not None:
                warnings.warn(
                    f"measuring on {device} will be slower: a kernel disagrees with torch", RuntimeWarning, stacklevel=2
                )
            return False
    return True


def _ones(x: Tensor) -> Tensor:
    return x.new_ones(len(x), dtype=torch.float64)


class ReducedFeatures(Features):
    """Features of which only the statistics are left."""

    def __init__(self, statistics: Statistics):
        self.statistics = statistics
        self.mask = statistics.mask
        self.batch = statistics.norms.shape[:-1]
        self.tokens, self.dim = statistics.norms.shape[-1], statistics.mean.shape[-1]
        self.norms, self.mean, self.scale = statistics.norms, statistics.mean, statistics.scale
        self.hfc_square, self.unit_sum_square = statistics.hfc_square, statistics.unit_sum_square
        self.extreme = False  # what depends on it was computed from the tokens
        self._x = self._given = None
        self.device, self.plain = statistics.norms.device, False
        self.spectra, self.sums = {}, {}

    @property
    def high(self) -> Float[Tensor, "batch side side"]:
        """The Gram matrix of HFC[X]."""
        if self.statistics.high is None:
            raise RuntimeError("a metric that needs singular values must say so (Metric.spectrum)")
        return self.statistics.high

    @cached_property
    def problem(self) -> EigenProblem:
        """The eigenproblem of X, from that of HFC and the mean."""
        smooth = (self.hfc_square <= NEARLY_RANK_ONE * self.lfc_square) & (self.lfc_square > 0)
        side = self._token_side if self.tokens <= self.dim else self._feature_side
        split, whole, leading = side()
        left, right = (
            torch.where(smooth[:, None, None], torch.stack(near, -1), torch.stack(far, -1))
            for near, far in zip(split, whole, strict=True)
        )
        return EigenProblem(torch.baddbmm(self.high, left, right.mT), torch.where(smooth, leading, 0.0))

    @cached_property
    def hfc_problem(self) -> EigenProblem:
        """The eigenproblem of HFC[X]."""
        return EigenProblem(self.high, torch.zeros_like(self.hfc_square))

    def _token_side(self) -> tuple[Factors, Factors, Tensor]:
        """XXᵀ = BBᵀ + c1ᵀ + 1cᵀ + x̄ᵀx̄·11ᵀ with B = HFC, c = B x̄; near collapse, the same without its leading pair.

        There v = x̄/‖x̄‖ and u = Xv/‖Xv‖ are that pair: what remains is (I − uuᵀ)(BBᵀ − ccᵀ/‖x̄‖²)(I − uuᵀ).
        """
        c, one = self.statistics.cross, self.statistics.mask.to(torch.float64)
        length = self.mean.square().sum(-1, keepdim=True)  # ‖x̄‖²
        inverse = inverse_or_zero(length)
        whole = [c, one, torch.zeros_like(c)], [one, c + length * one, torch.zeros_like(c)]
        along = c * inverse.sqrt() + length.sqrt() * one  # X v
        size = along.square().sum(-1, keepdim=True)
        u = along * inverse_or_zero(size.sqrt())
        b = (self.high @ u[..., None])[..., 0] - c * ((c * u).sum(-1, keepdim=True) * inverse)
        inside = (u * b).sum(-1, keepdim=True)
        split = [-c * inverse, -u, inside * u - b], [c, b, u]
        return split, whole, (size + inside)[..., 0]

    def _feature_side(self) -> tuple[Factors, Factors, Tensor]:
        """XᵀX = BᵀB + n·x̄x̄ᵀ; near collapse (I − vvᵀ) BᵀB (I − vvᵀ), v = x̄/‖x̄‖."""
        v = self.mean * inverse_or_zero(torch.linalg.vector_norm(self.mean, dim=-1, keepdim=True))
        b = (self.high @ v[..., None])[..., 0]
        inside = (v * b).sum(-1, keepdim=True)
        whole = [self.count[:, None] * self.mean, torch.zeros_like(v)], [self.mean, torch.zeros_like(v)]
        split = [-v, inside * v - b], [b, v]
        return split, whole, self.lfc_square + inside[..., 0]
