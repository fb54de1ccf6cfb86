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
    x: Float[Tensor, "token dim"],
    a: Float[Tensor, "token token"],
    w: Float[Tensor, "dim dim"],
    *,
    layers: int = 0,
    residual: bool = True,
) -> Float[Tensor, "token dim"]:
    """`Σ_D ((1+λ_jλ_i)/ρ)^ℓ s_{j,i} v_i^A v_j^{Hᵀ}` over the dominating pairs D, ρ their modulus.

    `X_ℓ / ρ^ℓ` minus this goes to 0. For one positive dominating eigenvalue it does not depend on `layers`
    (Theorem 2, cases 1 and 2); a negative one or complex ones turn with every layer (case 3).

    >>> a = torch.tensor([[0.75, 0.25], [0.25, 0.75]])  # eigenvalues 1 and 0.5
    >>> [round(v, 6) for v in limit(torch.tensor([[3.0], [1.0]]), a, torch.tensor([[0.5]])).flatten().tolist()]
    [2.0, 2.0]
    """
    return limit_of(x, dominance(a, w, residual=residual), layers)


def limit_of(x: Float[Tensor, "token dim"], found: Dominance, layers: int = 0) -> Float[Tensor, "token dim"]:
    """The same, from a `Dominance` already computed."""
    require_real(x, "x")
    shape = (len(found.a.values), len(found.h.values))
    if x.shape != shape:
        raise FeatureError(f"x must be (tokens, dim) = {shape} to fit a and w, got {tuple(x.shape)}")
    condition = max(found.a.condition, found.h.condition)
    if not condition < 1 / torch.finfo(torch.float64).eps:
        raise WeightsError(
            f"A or H is not diagonalisable (condition of its eigenvectors {condition:.1e}), so Theorem 2 does not "
            "apply; use simulate instead"
        )
    start = x.detach().cpu().to(torch.complex128)
    # X = V_A S V_Hᵀ, so row ji of Q⁻¹ applied to vec(X) is S_ij
    inner = torch.linalg.solve(found.a.vectors, start)
    s = torch.linalg.solve(found.h.vectors, inner.mT).mT
    turned = pair_eigenvalues(found.h.values, found.a.values, found.residual)
    top = turned.abs().max()
    if not top > 0 or math.isnan(float(top)):
        return torch.zeros_like(x)
    weight = torch.where(found.pattern, s * (turned / top) ** layers, 0)
    return (found.a.vectors @ weight @ found.h.vectors.mT).real.to(x.dtype)
