"""Theorem 2's limit matrix."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from unsmooth.errors import FeatureError, WeightsError
from unsmooth.metrics.dense import require_real
from unsmooth.theory.dominance import Dominance, dominance, pair_eigenvalues


def limit(
    x0: Float[Tensor, "token dim"],
    h: Float[Tensor, "dim dim"],
    a: Float[Tensor, "token token"],
    *,
    layers: int = 0,
    residual: bool = True,
) -> Float[Tensor, "token dim"]:
    """`Σ_D ((1+λ_jλ_i)/ρ)^ℓ s_{j,i} v_i^A v_j^{Hᵀ}` over the dominating pairs D, ρ their modulus.

    `X_ℓ / ρ^ℓ` minus this goes to 0. For one positive dominating eigenvalue it does not depend on `layers`
    (Theorem 2, cases 1 and 2); a negative one or complex ones turn with every layer (case 3).
    """
    found = dominance(h, a, residual=residual)
    return limit_of(found, x0, layers)


def limit_of(found: Dominance, x0: Float[Tensor, "token dim"], layers: int = 0) -> Float[Tensor, "token dim"]:
    """The same, from a `Dominance` already computed."""
    require_real(x0, "x0")
    shape = (len(found.a.values), len(found.h.values))
    if x0.shape != shape:
        raise FeatureError(f"x0 must be (tokens, dim) = {shape} to fit a and h, got {tuple(x0.shape)}")
    condition = max(found.a.condition, found.h.condition)
    if not condition < 1 / torch.finfo(torch.float64).eps:
        raise WeightsError(
            f"A or H is not diagonalisable (condition of its eigenvectors {condition:.1e}), so Theorem 2 does not "
            "apply; use simulate instead"
        )
    start = x0.detach().cpu().to(torch.complex128)
    # X = V_A S V_Hᵀ, so row ji of Q⁻¹ applied to vec(X) is S_ij
    inner = torch.linalg.solve(found.a.vectors, start)
    s = torch.linalg.solve(found.h.vectors, inner.mT).mT
    turned = pair_eigenvalues(found.h.values, found.a.values, found.residual)
    top = turned.abs().max()
    if not top > 0 or math.isnan(float(top)):
        return torch.zeros_like(x0)
    weight = torch.where(found.pattern, s * (turned / top) ** layers, 0)
    return (found.a.vectors @ weight @ found.h.vectors.mT).real.to(x0.dtype)
