"""What a constant does: one row c for every token, at every layer (norm bias, b_v, b_proj; docs/theory.md, section 5).

The mean token follows `z' = z G + c` with `G = I + s ΣW_h`, and HFC does not see c at all. So HFC grows like ρ_H as
before, and LFC like the largest of ρ_L, ρ_H and 1: a repeated layer with a constant smooths where `ρ_H < max(ρ_L, 1)`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Complex, Float
from torch import Tensor

from unsmooth.errors import WeightsError
from unsmooth.metrics.tolerance import is_zero


@dataclass(frozen=True)
class FixedPoint:
    """Where the mean token stays: `point G + c − drift = point`.

    drift     the part of c along directions that G leaves alone (a norm's centring makes one): it is added for ever
    attracts  whether the mean token goes there, all other eigenvalues of G lying inside the unit circle
    """

    point: Float[Tensor, "*batch dim"]
    drift: Float[Tensor, "*batch dim"]
    attracts: Bool[Tensor, "*batch"]


def exponent_with_constant(log_rho_hfc: Float[Tensor, "*batch"], log_rho_lfc: Float[Tensor, "*batch"]) -> Tensor:
    """γ of a repeated layer that adds a constant, nats per layer: `log ρ_H − log max(ρ_L, 1)`.

    >>> exponent_with_constant(torch.tensor(-0.12), torch.tensor(-0.25))
    tensor(-0.1200)
    """
    return log_rho_hfc - log_rho_lfc.clamp_min(0)


def fixed_point(g: Float[Tensor, "dim dim"], constant: Float[Tensor, " dim"]) -> FixedPoint:
    """The fixed point of `z ↦ z G + c` (row vectors).

    >>> found = fixed_point(torch.tensor([[0.5, 0.0], [0.0, -1.0]]), torch.tensor([1.0, 1.0]))
    >>> [round(value, 6) for value in found.point.tolist()], bool(found.attracts)
    ([2.0, 0.5], False)
    """
    if g.ndim != 2 or constant.shape != g.shape[:1]:
        raise WeightsError(f"g must be (dim, dim) and constant (dim,), got {tuple(g.shape)}, {tuple(constant.shape)}")
    values, vectors = torch.linalg.eig(g.double().mT)
    return resting(1 - values, vectors, torch.linalg.solve(vectors, constant.to(vectors)))


def resting(
    gap: Complex[Tensor, "*batch dim"],
    vectors: Complex[Tensor, "dim dim"],
    coefficients: Complex[Tensor, "*batch dim"],
) -> FixedPoint:
    """The same from `gap`, 1 − the eigenvalues of Gᵀ (one row per step), its eigenvectors, and c in their basis."""
    still = torch.stack([is_zero(row) for row in gap.reshape(-1, gap.shape[-1])]).view(gap.shape)
    inside = torch.where(still, 0, coefficients / torch.where(still, 1, gap))
    outside = torch.where(still, coefficients, 0)
    point, drift = ((c @ vectors.mT).real for c in (inside, outside))
    return FixedPoint(point, drift, (((1 - gap).abs() < 1) | still).all(-1))
