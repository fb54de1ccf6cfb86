"""ρ_L, ρ_H and γ of a layer with many heads, exactly (docs/theory.md, section 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Complex, Float, Int
from torch import Tensor

from unsmooth.errors import FeatureError, OptionError, WeightsError
from unsmooth.metrics.dense import require_real
from unsmooth.theory.high_frequency import Search, SeenLayer, dominating_hfc, inputs_at_once
from unsmooth.theory.krylov import Enough, Goal, Ritz
from unsmooth.theory.low_frequency import (
    Linear,
    Which,
    Whole,
    growth,
    lfc_growths,
    score_of,
    whole_lfc,
    with_null_space,
)
from unsmooth.theory.matrices import HeadMatrices
from unsmooth.theory.operator import HeadMaps, Weights, arrange, own_attention
from unsmooth.theory.stochastic import check_row_stochastic


@dataclass(frozen=True)
class LayerExponent:
    """Growth of both parts per layer, in the batch shape of `attention`.

    rho_lfc   ρ(I + s ΣW_h), of (I + s ΣW_h) M with a map after the sum; for "rightmost" the largest real part of ΣW_h
    rho_hfc   ρ of `Y ↦ Y + s Σ P A_h Y W_h`, or of that times M; for "rightmost" the map's largest real part
    exponent  γ = log ρ_H − log ρ_L in nats per layer ("rightmost": the difference, per unit of step)
    converged False where the Krylov search met its limit before its tolerance; the values are then estimates

    The error is the residual `‖Ty − θy‖` times the eigenvalue's condition number, which is large for maps far from
    normal; where float32 is not enough for those, the search is repeated in float64. Its tolerance is `tol` times the
    size of T, or `tol/30` nats per layer where T is small; tol is √eps of the dtype (float32: 3e-4, so 1e-5 nats)
    unless given. Of a causal layer whose blocks, one a token, are no wider than the search's subspace, all eigenvalues
    are computed instead: no product and no residual.
    """

    rho_lfc: Float[Tensor, "*batch"]
    rho_hfc: Float[Tensor, "*batch"]
    exponent: Float[Tensor, "*batch"]
    converged: Bool[Tensor, "*batch"]
    residual: Float[Tensor, "*batch"]
    products: int


def layer_exponent(
    a: Float[Tensor, "*batch head token token"],
    w: Weights,
    *,
    scale: Float[Tensor, "*batch"] | float = 1.0,
    mask: Bool[Tensor, "*batch token"] | None = None,
    which: Which = "modulus",
    after: Linear | None = None,
    lfc_spectrum: Complex[Tensor, " dim"] | None = None,
    subspace: int = 24,
    tol: float | None = None,
    accuracy: float | None = None,
    max_products: int = 600,
) -> LayerExponent:
    """γ of `X' = X + s Σ_h A_h X W_h` for every input at once, by matrix-free Arnoldi.

    `w` is `(heads, dim, dim)`, or the pair `(w_v, w_proj)`, with which a product costs about half an
    attention layer. `scale` is the step size s (one per input, or one for all), `mask` keeps tokens. `after` is a
    linear map on the features of the whole sum, `X' = (X + s Σ_h A_h X W_h) M`: the centring and weight of a norm
    that follows it. `lfc_spectrum` saves the d×d eigenproblem where the eigenvalues of ΣW_h (with `after`: those of
    `(I + s ΣW_h) M − I`) are already known. `accuracy` stops a search as soon as its residual is that share of |γ|
    (0.01: γ to about one percent), which saves most products.
    """
    if which not in ("modulus", "rightmost"):
        raise OptionError.unknown("which", which, ["modulus", "rightmost"])
    if after is not None and which == "rightmost":
        raise OptionError("a map after the sum leaves no small step: take which='modulus', or no `after`")
    require_real(a, "a")
    for part in w if isinstance(w, tuple | list) else (w,):
        require_real(part, "w")
    maps = arrange(w, twin=after is None)
    batch = a.shape[:-3]
    flat, kept = _flatten(a, maps, mask)
    steps = torch.as_tensor(scale, dtype=torch.float64).cpu().expand(batch).reshape(-1)
    if kept is not None:  # the row of a padded query may be NaN, and no kept query looks at it
        flat = torch.where(kept[:, None, :, None] & kept[:, None, None], flat, 0)
    layer = SeenLayer(HeadMatrices.of(flat), own_attention(flat), kept)
    search = Search(subspace, tol, accuracy, max_products)
    (found,) = _exponents(layer, maps, steps, [which], after, lfc_spectrum, search)
    parts = (found.rho_lfc, found.rho_hfc, found.exponent, found.converged, found.residual)
    low, high, exponent, converged, residual = (part.reshape(batch) for part in parts)
    return LayerExponent(low, high, exponent, converged, residual, found.products)


def both_exponents(
    layer: SeenLayer,
    w: Weights,
    scale: Float[Tensor, " batch"],
    *,
    after: Linear | None = None,
    lfc_spectrum: Complex[Tensor, " dim"] | None = None,
    small_spectrum: Complex[Tensor, " dim"] | None = None,
    accuracy: float | None = None,
    max_products: int = 600,
) -> tuple[LayerExponent, LayerExponent]:
    """`layer_exponent` by modulus and for the vanishing step (whose ΣW_h has `small_spectrum`), of matrices that were
    checked: one search for both, since they are eigenvalues of one map unless another follows the sum.
    """
    search, steps = Search(accuracy=accuracy, max_products=max_products), scale.double().cpu()
    if after is None:
        fast, slow = _exponents(layer, arrange(w), steps, ["modulus", "rightmost"], None, lfc_spectrum, search)
        return fast, slow
    (fast,) = _exponents(layer, arrange(w, twin=False), steps, ["modulus"], after, lfc_spectrum, search)
    (slow,) = _exponents(layer, arrange(w), steps, ["rightmost"], None, small_spectrum, search)
    return fast, slow


def _exponents(
    layer: SeenLayer, maps: HeadMaps, steps: Float[Tensor, " batch"], kinds: Sequence[Which], after: Linear | None,
    spectrum: Tensor | None, search: Search,
) -> list[LayerExponent]:  # fmt: skip
    tol = torch.finfo(layer.matrices.dtype).eps ** 0.5 if search.tol is None else search.tol
    whole = None if after is None else Whole(after, steps.to(maps.inner))
    if whole is not None:  # the map less the identity: |1 + θ| is then its growth, as without a map after the sum
        lows, steps = [whole_lfc(maps, steps, whole, spectrum)], torch.ones_like(steps)
    else:
        lows = lfc_growths(maps, steps, kinds, search.max_products, spectrum)
    parts: list[list[Ritz]] = []
    for rows in torch.arange(len(steps)).split(inputs_at_once(layer.matrices, maps, search.subspace)):
        goals = [
            Goal(score_of(kind, steps[rows]), _enough(kind, steps[rows], low[rows], tol / 30, search.accuracy))
            for kind, low in zip(kinds, lows, strict=True)
        ]
        some = layer.inputs(None if len(rows) == len(steps) else rows)
        followed = None if whole is None else whole.rows(rows)
        parts.append(dominating_hfc(some, maps, goals, tol, search, followed))
    return [
        _together(kind, low, steps, maps, list(found))
        for kind, low, found in zip(kinds, lows, zip(*parts, strict=True), strict=True)
    ]


def _together(kind: Which, low: Tensor, steps: Tensor, maps: HeadMaps, parts: list[Ritz]) -> LayerExponent:
    high = with_null_space(torch.cat([part.value for part in parts]), steps, kind, maps)
    return LayerExponent(
        rho_lfc=low,
        rho_hfc=high,
        exponent=high - low if kind == "rightmost" else high.log() - low.log(),
        converged=torch.cat([part.converged for part in parts]),
        residual=torch.cat([part.residual for part in parts]),
        products=max(part.products for part in parts),
    )


def _enough(which: Which, steps: Tensor, low: Tensor, nats: float, accuracy: float | None) -> Enough:
    """The residual that means `nats` per layer, or `accuracy` of |γ| where that is more."""

    def enough(theta: Complex[Tensor, " batch"], rows: Int[Tensor, " batch"]) -> Float[Tensor, " batch"]:
        s, high = steps[rows], growth(theta, steps[rows], which)
        allowed = torch.full_like(s, nats)
        if accuracy is not None:
            gamma = (high - low[rows]) * s if which == "rightmost" else high.log() - low[rows].log()
            allowed = torch.maximum(allowed, accuracy * gamma.abs().nan_to_num(0, 0, 0))
        return allowed / s * (1 if which == "rightmost" else high)

    return enough


def _flatten(attention: Tensor, maps: HeadMaps, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    if attention.ndim < 3 or attention.shape[-3] != maps.heads:
        raise WeightsError(
            f"attention must be (..., heads, tokens, tokens) with {maps.heads} heads as in the weights, got shape "
            f"{tuple(attention.shape)}"
        )
    if attention.shape[-1] < 2 or (mask is not None and bool((mask.sum(-1) < 2).any())):
        raise FeatureError("one token only: there is no high-frequency part; give at least two tokens per input")
    check_row_stochastic(attention, mask)
    wide = maps.inner.dtype
    flat = attention.detach().to(maps.inner.device, wide).reshape(-1, *attention.shape[-3:])
    return flat, None if mask is None else mask.to(flat.device).reshape(-1, mask.shape[-1])
