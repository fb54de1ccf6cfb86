"""Sufficient statistics: what is left of features when only Gram-like metrics are wanted, small enough to wait.

On a GPU a point costs a handful of launches here; everything after runs once for many points together. HFC[X]
is formed first and the Gram matrix is that of HFC, so that its digits are relative to HFC's size, not to X's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from unsmooth.metrics.features import Features, inverse_or_zero, keep, rescaled, safe_norms, to_float64, units
from unsmooth.metrics.kernels.reduce import Reduced, cuda_reduce
from unsmooth.metrics.spectrum import NEARLY_RANK_ONE, EigenProblem


@dataclass(frozen=True)
class Statistics:
    """Of X = HFC + 1x̄ᵀ: everything the norms, cosines and singular values of X follow from."""

    mask: Bool[Tensor, "batch token"]
    norms: Float[Tensor, "batch token"]
    mean: Float[Tensor, "batch dim"]
    high: Float[Tensor, "batch side side"]  # HFC·HFCᵀ if tokens ≤ dim, else HFCᵀ·HFC
    cross: Float[Tensor, "batch token"]  # HFC·x̄
    unit_sum: Float[Tensor, "batch dim"]  # Σ x_i/‖x_i‖
    scale: Float[Tensor, " batch"]  # what the features were divided by

    @classmethod
    def of(cls, x: Float[Tensor, "batch token dim"], mask: Bool[Tensor, "batch token"] | None) -> Statistics:
        """Reduce tokens of any float dtype; HFC is the only float64 copy of them, and does not stay."""
        known = x.new_ones(1, 1, dtype=torch.bool).expand(x.shape[:-1]) if mask is None else mask
        x, scale = rescaled(keep(x, mask), x.dtype) if x.dtype == torch.float64 else (x, _ones(x))
        found = cuda_reduce(x, mask) if x.is_cuda and x.dtype != torch.float64 else None
        norms, mean, high, cross, unit_sum = found or reduce_tokens(x, mask)
        rows = high if x.shape[-2] <= x.shape[-1] else high.mT
        return cls(known, norms, mean, rows @ rows.mT, cross, unit_sum, scale)

    @classmethod
    def cat(cls, parts: Sequence[Statistics]) -> Statistics:
        """Several points as one batch."""
        return cls(*(torch.cat([getattr(part, f.name) for part in parts]) for f in fields(cls)))

    @property
    def nbytes(self) -> int:
        """How much memory they hold."""
        return sum(getattr(self, f.name).nbytes for f in fields(self))


def reduce_tokens(x: Float[Tensor, "batch token dim"], mask: Bool[Tensor, "batch token"] | None) -> Reduced:
    """What cuda_reduce does, by torch alone."""
    kept = to_float64(keep(x, mask))
    count = x.shape[-2] if mask is None else mask.sum(-1, keepdim=True)
    mean = kept.sum(-2) / count
    if x.dtype == torch.float64:
        norms, unit_sum = safe_norms(kept), units(kept).sum(-2)
    else:  # from the tokens themselves: HFC + x̄ has lost the digits of one that is short beside x̄
        norms = torch.linalg.vector_norm(kept, dim=-1)
        unit_sum = (inverse_or_zero(norms)[..., None, :] @ kept)[..., 0, :]
    high = keep(kept - mean[..., None, :], mask)
    return norms, mean, high, (high @ mean[..., None])[..., 0], unit_sum


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
        self.extreme = False  # what depends on it was computed from the tokens
        self._x = None
        self.spectra = {}

    @cached_property
    def hfc_square(self) -> Float[Tensor, " batch"]:
        """‖HFC[X]‖_F²."""
        return self.statistics.high.diagonal(dim1=-2, dim2=-1).sum(-1)

    @cached_property
    def unit_sum_square(self) -> Float[Tensor, " batch"]:
        """‖Σ_i x_i/‖x_i‖‖²."""
        return self.statistics.unit_sum.square().sum(-1)

    @cached_property
    def problem(self) -> EigenProblem:
        """The eigenproblem of X, from that of HFC and the mean."""
        smooth = (self.hfc_square <= NEARLY_RANK_ONE * self.lfc_square) & (self.lfc_square > 0)
        side = self._token_side if self.tokens <= self.dim else self._feature_side
        left, right, leading = side(smooth)
        return EigenProblem(torch.baddbmm(self.statistics.high, left, right.mT), torch.where(smooth, leading, 0.0))

    @cached_property
    def hfc_problem(self) -> EigenProblem:
        """The eigenproblem of HFC[X]."""
        return EigenProblem(self.statistics.high, torch.zeros_like(self.hfc_square))

    def _token_side(self, smooth: Bool[Tensor, " batch"]) -> tuple[Tensor, Tensor, Tensor]:
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
        b = (self.statistics.high @ u[..., None])[..., 0] - c * ((c * u).sum(-1, keepdim=True) * inverse)
        inside = (u * b).sum(-1, keepdim=True)
        split = [-c * inverse, -u, inside * u - b], [c, b, u]
        chosen = [
            torch.where(smooth[:, None, None], torch.stack(near, -1), torch.stack(far, -1))
            for near, far in zip(split, whole, strict=True)
        ]
        return chosen[0], chosen[1], (size + inside)[..., 0]

    def _feature_side(self, smooth: Bool[Tensor, " batch"]) -> tuple[Tensor, Tensor, Tensor]:
        """XᵀX = BᵀB + n·x̄x̄ᵀ; near collapse (I − vvᵀ) BᵀB (I − vvᵀ), v = x̄/‖x̄‖."""
        v = self.mean * inverse_or_zero(torch.linalg.vector_norm(self.mean, dim=-1, keepdim=True))
        b = (self.statistics.high @ v[..., None])[..., 0]
        inside = (v * b).sum(-1, keepdim=True)
        whole = [self.count[:, None] * self.mean, torch.zeros_like(v)], [self.mean, torch.zeros_like(v)]
        split = [-v, inside * v - b], [b, v]
        chosen = [
            torch.where(smooth[:, None, None], torch.stack(near, -1), torch.stack(far, -1))
            for near, far in zip(split, whole, strict=True)
        ]
        return chosen[0], chosen[1], self.lfc_square + inside[..., 0]
