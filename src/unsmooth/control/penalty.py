"""A soft penalty that pushes eigenvalues to their side, instead of clipping them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unsmooth.control.bounds import SIGNS
from unsmooth.control.reparametrization import control_of, controls_of
from unsmooth.errors import OptionError
from unsmooth.metrics.workers import spread
from unsmooth.models import LayerView, view
from unsmooth.models.storage import whole
from unsmooth.theory.folding import centre_and_scale


def spectral_penalty(
    model: nn.Module, mode: str | None = None, *, margin: float = 0.0, bound: float | None = None, folded: bool = False
) -> Float[Tensor, ""]:
    """Mean squared distance of H's eigenvalues from [−bound, −margin] (sharpening) or [margin, bound].

    Where r heads share a value head (and H's eigenvalue is the sum of theirs), r times each head's: if they all are
    inside, so is the sum. Eigenvalues that are 0 because H has not full rank do not count.
    Without a `bound` it is 1, and none for the bounds that have none ("abs", "square").
    On a reparametrised model it acts on ψ before the bound: use it with `bound="free"`, or with "clip", whose
    saturated ψ get no other gradient. On a plain model, `mode` says which side, and it acts on the eigenvalues of
    each layer's Σ_h H_h: on their real parts, and on their imaginary parts towards 0 (an eigenproblem per layer, on
    the host's cores: not to be captured in a CUDA graph, and differentiated once only). With `folded` these are of H as
    it acts, as in `adapt` and `edit`: with the norm's weight and centring and LayerScale, whose sign may turn a side
    round (that of DINOv2 is negative in half of the features).
    """
    _check(margin, bound)
    if controls_of(model):
        if mode is not None or folded:
            raise OptionError("this model is reparametrised and knows its modes: leave out `mode` and `folded`")
        control = control_of(model)
        raw = whole(control.psi) if control.bound.name in ("free", "clip") else control.shared * control.eigenvalues()
        unlimited = control.bound.signed and control.bound.limit is None
        return _distance(raw * control.sign, margin, 1.0 if bound is None and not unlimited else bound)
    return penalty_near(model, mode, margin=margin, bound=bound, folded=folded)()


def penalty_near(
    model: nn.Module, mode: str | None, *, margin: float = 0.0, bound: float | None = None, folded: bool = False
) -> Callable[[], Float[Tensor, ""]]:
    """The penalty of a plain model, to first order around its weights of now; exact, gradient included, at these.

    Calling it costs two products of matrices a layer, so one look at the eigenvalues serves some steps of training.
    """
    _check(margin, bound)
    if mode not in SIGNS:
        raise OptionError.unknown("mode", mode, SIGNS)
    layers = list({id(layer.attention): layer for layer in view(model).layers}.values())
    start = torch.stack([_whole(layer, folded) for layer in layers]).detach()
    solve = partial(_solved, SIGNS[mode], margin, 1.0 if bound is None else bound)
    found = spread(solve, list(start.cpu().unbind()))  # LAPACK, a core each: GPUs have no quicker way
    value = torch.stack([each[0] for each in found]).mean().to(start)
    gradient = torch.stack([each[1] for each in found]).to(start) / len(layers)

    def now() -> Float[Tensor, ""]:
        moved = torch.stack([_whole(layer, folded) for layer in layers]) - start
        return value + (gradient * moved).sum()

    return now


@torch.no_grad()
def spectral_sides(model: nn.Module, folded: bool = False) -> dict[str, float]:
    """Of the eigenvalues of all layers' Σ_h H_h: the share with Re λ < 0 (`negative`) and their share of Σ (Re λ)².

    And the penalty of each mode. Most eigenvalues of a trained H lie close to 0, where a penalty has no slope: it
    hardly changes how many are negative, but how much they weigh.
    """
    layers = {id(layer.attention): layer for layer in view(model).layers}.values()
    found = torch.cat(spread(torch.linalg.eigvals, [_whole(layer, folded).cpu() for layer in layers]))
    turned, squares = found.imag.square().mean(), found.real.double().square()
    energy = float(squares[found.real < 0].sum() / squares.sum().clamp(min=torch.finfo(torch.float64).tiny))
    penalties = {mode: float(_distance(sign * found.real, 0.0, 1.0) + turned) for mode, sign in SIGNS.items()}
    return {"negative": float((found.real < 0).double().mean()), "negative_energy": energy, **penalties}


def _solved(sign: float, margin: float, bound: float, h: Float[Tensor, "size size"]) -> tuple[Tensor, Tensor]:
    """A layer's penalty and its gradient."""
    with torch.enable_grad():
        h = h.detach().requires_grad_()
        values = torch.linalg.eigvals(h)
        found = _distance(sign * values.real, margin, bound) + values.imag.square().mean()
        return found.detach(), torch.autograd.grad(found, h)[0]


def _check(margin: float, bound: float | None) -> None:
    if not (margin >= 0 and (bound is None or margin <= bound)):  # NaN, too
        raise OptionError(f"margin {margin} and bound {bound}: expected 0 ≤ margin ≤ bound")


def _whole(layer: LayerView, folded: bool) -> Float[Tensor, "size size"]:
    """Σ_h H_h; where it has not full rank, the smaller matrix with the same eigenvalues but for the zeros."""
    weights = layer.weights()
    shared, work = layer.heads // layer.kv_heads, torch.promote_types(weights.w_v.dtype, torch.float32)
    w_v, w_proj = weights.w_v[::shared].to(work), weights.w_proj.to(work)
    if folded and weights.norm is not None:
        w_v = centre_and_scale(weights.norm, w_v).to(work)
    if folded and weights.out_scale is not None:
        w_proj = w_proj * weights.out_scale.to(work)
    w_v = w_v.transpose(0, 1).flatten(1)
    w_proj = w_proj.unflatten(0, (-1, shared)).sum(1).flatten(0, 1)
    with torch.autocast(w_v.device.type, enabled=False):
        return w_proj @ w_v if w_v.shape[1] < w_v.shape[0] else (w_v @ w_proj).mT


def _distance(signed: Tensor, margin: float, bound: float | None) -> Float[Tensor, ""]:
    below = (margin - signed).clamp(min=0.0)
    above = torch.zeros_like(signed) if bound is None else (signed - bound).clamp(min=0.0)
    return (below.square() + above.square()).mean()
