"""ρ_L, ρ_H and γ of a layer with many heads, exactly (docs/theory.md, section 4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Complex, Float, Int
from torch import Tensor

from unsmooth.errors import FeatureError, OptionError, WeightsError
from unsmooth.metrics.dense import require_real
from unsmooth.theory.krylov import Enough, Ritz, Score, dominating
from unsmooth.theory.operator import (
    HeadMaps,
    Weights,
    arrange,
    centre,
    high_frequency,
    own_attention,
    random_start,
    select,
)
from unsmooth.theory.stochastic import check_row_stochastic

Which = Literal["modulus", "rightmost"]
Linear = Callable[[Float[Tensor, "*rows dim"]], Float[Tensor, "*rows dim"]]
_DENSE_UP_TO = 384  # below this, all eigenvalues of a d×d matrix cost less than a Krylov search
_SEARCH_LONGER, _LONG = 1024, 4800  # a product with a d×d matrix is cheap: so many before all eigenvalues are found
_FAR_FROM_NORMAL = 30.0  # the condition of an eigenvalue above which float32 may not be enough; models have 1 to 3
_BASIS_BYTES = {"cpu": 2**28, "cuda": 2**33}


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
    unless given.
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
    tol = torch.finfo(flat.dtype).eps ** 0.5 if tol is None else tol
    whole = None if after is None else _Whole(after, steps.to(flat))
    if whole is not None:  # the map less the identity: |1 + θ| is then its growth, as without a map after the sum
        low, steps = _whole_lfc(maps, steps, whole, lfc_spectrum), torch.ones_like(steps)
    else:
        low = lfc_values(maps, steps, which, max_products, lfc_spectrum)
    parts = []
    for rows in torch.arange(len(flat)).split(_chunk(flat, maps, subspace)):
        chunk_mask = None if kept is None else kept[rows]
        enough = _enough(which, steps[rows], low[rows], tol / 30, accuracy)
        search = _Search(_score(which, steps[rows]), subspace, tol, max_products, enough)
        followed = None if whole is None else whole.rows(rows)
        parts.append(_hfc_wide_enough(flat[rows], maps, chunk_mask, search, followed))
    theta = torch.cat([part.value for part in parts])
    high = _with_null_space(theta, steps, which, maps)
    exponent = high - low if which == "rightmost" else high.log() - low.log()
    return LayerExponent(
        rho_lfc=low.reshape(batch),
        rho_hfc=high.reshape(batch),
        exponent=exponent.reshape(batch),
        converged=torch.cat([part.converged for part in parts]).reshape(batch),
        residual=torch.cat([part.residual for part in parts]).reshape(batch),
        products=max((part.products for part in parts), default=0),
    )


def growth(theta: Complex[Tensor, " batch"], steps: Float[Tensor, " batch"], which: Which) -> Float[Tensor, " batch"]:
    """`|1 + sθ|`, or `Re θ` for the vanishing step."""
    if which == "rightmost":
        return theta.real.broadcast_to(torch.broadcast_shapes(theta.shape, steps.shape))
    return (1 + steps * theta).abs()


def _with_null_space(theta: Tensor, steps: Tensor, which: Which, maps: HeadMaps) -> Tensor:
    found = growth(theta, steps, which)
    return torch.maximum(found, growth(torch.zeros_like(theta), steps, which)) if maps.has_null_space else found


def lfc_values(
    maps: HeadMaps,
    steps: Float[Tensor, " batch"],
    which: Which = "modulus",
    max_products: int = 600,
    spectrum: Complex[Tensor, " dim"] | None = None,
) -> Float[Tensor, " batch"]:
    """ρ_L for every step size: one d×d eigenproblem, no data; a Krylov search where d is large."""
    if spectrum is not None:
        return growth(spectrum[None], steps[:, None], which).amax(-1)
    total = maps.total.detach().double()
    if total.shape[0] > _DENSE_UP_TO:
        large = total.shape[0] > _SEARCH_LONGER  # where all eigenvalues would take minutes
        found = _lfc_search(total, steps, which, _LONG if large else max_products, 1e-6 if large else 1e-9)
        if bool(found.converged.all()):
            return _with_null_space(found.value, steps, which, maps)
    values = torch.linalg.eigvals(total.cpu())
    if maps.has_null_space:
        values = torch.cat([values, values.new_zeros(1)])
    return growth(values[None], steps[:, None], which).amax(-1)


def _lfc_search(total: Tensor, steps: Tensor, which: Which, max_products: int, tol: float) -> Ritz:
    generator = torch.Generator().manual_seed(total.shape[0])
    start = torch.randn(total.shape[0], generator=generator, dtype=torch.float64).to(total)
    return dominating(
        lambda vectors, rows: vectors @ total,
        start.expand(len(steps), -1),
        _score(which, steps),
        subspace=48,
        tol=tol,
        max_products=max_products,
    )


@dataclass(frozen=True)
class _Whole:
    """`Y ↦ (Y + s T Y) M − Y`: a map M after the sum acts on the residual too, so no step can be divided out."""

    after: Linear
    steps: Float[Tensor, " batch"]

    def rows(self, chosen: Int[Tensor, " batch"]) -> _Whole:
        return _Whole(self.after, self.steps[chosen.to(self.steps.device)])

    def __call__(self, state: Tensor, product: Tensor, rows: Int[Tensor, " batch"] | None) -> Tensor:
        return self.after(state + select(self.steps, rows)[:, None, None] * product) - state


def _whole_lfc(maps: HeadMaps, steps: Tensor, whole: _Whole, spectrum: Tensor | None) -> Float[Tensor, " batch"]:
    if spectrum is not None:
        return growth(spectrum[None], torch.ones_like(steps)[:, None], "modulus").amax(-1)
    total, eye = maps.total.detach(), torch.eye(maps.dim).to(maps.inner)
    found = {
        step: torch.linalg.eigvals(whole.after(eye + step * total).double().cpu()).abs().max()
        for step in set(steps.tolist())
    }
    return torch.stack([found[step] for step in steps.tolist()])


@dataclass(frozen=True)
class _Search:
    score: Score
    subspace: int
    tol: float
    max_products: int
    enough: Enough


def _hfc_wide_enough(
    attention: Tensor, maps: HeadMaps, mask: Tensor | None, search: _Search, whole: _Whole | None
) -> Ritz:
    """`_hfc`, and once more in float64 where the map is too far from normal for float32 to tell its eigenvalues."""
    found = _hfc(attention, maps, mask, search, whole)
    rough = ~found.converged & (found.condition > _FAR_FROM_NORMAL)
    if attention.dtype == torch.float64 or not bool(rough.any()):
        return found
    wide = HeadMaps(maps.inner.double(), None if maps.outer is None else maps.outer.double(), maps.heads, maps.dim)
    again = _hfc(
        attention.double() / attention.double().sum(-1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny),
        wide, mask, search, None if whole is None else _Whole(whole.after, whole.steps.double()),
    )  # fmt: skip
    chosen = {
        name: torch.where(rough, getattr(again, name), getattr(found, name))
        for name in ("value", "residual", "norm", "condition", "converged")
    }
    return Ritz(**chosen, products=found.products + again.products)


def _hfc(attention: Tensor, maps: HeadMaps, mask: Tensor | None, search: _Search, whole: _Whole | None) -> Ritz:
    count, _, token, _ = attention.shape
    causal = own_attention(attention, mask)
    factor, kept = (centre(attention, mask), mask) if causal is None else causal
    product = maps.product if causal is None else maps.own_product

    def apply(vectors: Tensor, rows: Int[Tensor, " batch"] | None) -> Tensor:
        state = vectors.view(-1, token, maps.width)
        found = product(select(factor, rows), state)
        return (found if whole is None else whole(state, found, rows)).reshape(len(vectors), -1)

    def project(vectors: Tensor, rows: Int[Tensor, " batch"] | None) -> Tensor:
        state, inside = vectors.view(-1, token, maps.width), None if kept is None else select(kept, rows)
        if causal is None or inside is None:
            return high_frequency(state, inside).reshape(len(vectors), -1)
        return torch.where(inside[..., None], state, 0).reshape(len(vectors), -1)

    start = project(random_start(count, token, maps.width, attention).reshape(count, -1), None)
    return dominating(
        apply,
        start,
        search.score,
        subspace=min(search.subspace, (token - 1) * maps.width),
        tol=search.tol,
        max_products=search.max_products,
        enough=search.enough,
        project=project,
    )


def _score(which: Which, steps: Float[Tensor, " batch"]) -> Score:
    def score(theta: Complex[Tensor, "batch ritz"], rows: Int[Tensor, " batch"]) -> Float[Tensor, "batch ritz"]:
        return growth(theta, steps[rows][:, None], which)

    return score


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


def _chunk(attention: Tensor, maps: HeadMaps, subspace: int) -> int:
    per_input = (2 * subspace + 2) * attention.shape[-1] * maps.width * attention.element_size()
    return max(1, _BASIS_BYTES.get(attention.device.type, 2**28) // per_input)
