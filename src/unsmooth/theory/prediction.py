"""Predicted HFC/LFC, cosine similarity and effective rank of the limit (docs/theory.md, section 3)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from unsmooth.theory.eigen import Eigen


@dataclass(frozen=True)
class LimitMetrics:
    """The metrics of the limit; `None` where they depend on the start (ask `limit(x, a, w)` then)."""

    hfc_lfc: float | None
    cosine: float | None
    effective_rank: float | None


def predict_limit(pattern: Bool[Tensor, "token dim"], a: Eigen, allowed: float) -> LimitMetrics:
    """The limit's metrics when one real direction of A dominates: `v wᵀ` for some w, whatever H's pairs are."""
    tokens = pattern.any(1).nonzero().flatten().tolist()
    if len(tokens) != 1:
        return LimitMetrics(None, None, None)
    (token,) = tokens
    if token == len(a.values) - 1:
        return LimitMetrics(hfc_lfc=0.0, cosine=1.0, effective_rank=1.0)
    if abs(float(a.values[token].imag)) > allowed:
        return LimitMetrics(None, None, None)
    vector = real_direction(a.vectors[:, token])
    return LimitMetrics(direction_hfc_lfc(vector), direction_cosine(vector), effective_rank=1.0)


def real_direction(vector: Tensor) -> Float[Tensor, " token"]:
    """An eigenvector of a real eigenvalue, turned so that it is real."""
    largest = vector[vector.abs().argmax()]
    return (vector * (largest.conj() / largest.abs())).real


def direction_hfc_lfc(vector: Float[Tensor, " token"]) -> float:
    """`‖v − v̄1‖ / ‖v̄1‖`: HFC/LFC of `v wᵀ`; infinite when v has mean zero."""
    low = float(vector.mean().abs()) * len(vector) ** 0.5
    high = float((vector - vector.mean()).norm())
    return high / low if low > 1e-14 * high else math.inf


def direction_cosine(vector: Float[Tensor, " token"]) -> float:
    """`((n₊ − n₋)² − n₀) / (n(n−1))`: mean pairwise cosine of `v wᵀ`, where zero tokens count as cosine 0."""
    n = len(vector)
    threshold = 1e-12 * float(vector.abs().max())
    positive, negative = int((vector > threshold).sum()), int((vector < -threshold).sum())
    return ((positive - negative) ** 2 - (positive + negative)) / (n * (n - 1))
