"""Start from existing weights: the nearest Θ, ψ and Φ of a form, and how far they are from what was there."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from unsmooth.control.bounds import Bound
from unsmooth.control.fitting.grouped import fit_grouped
from unsmooth.control.fitting.layer import Fit, fit_layer
from unsmooth.control.forms import Form

__all__ = ["Fit", "nearest"]


def nearest(
    w_v: Float[Tensor, "head dim key"],
    w_proj: Float[Tensor, "head key dim"],
    form: Form,
    bound: Bound,
    sign: Float[Tensor, " one"],
    shared: int | None,
) -> list[Tensor]:
    """Θ, ψ and, where there is one, Φ; `shared` is how many heads share a value head, None where W_V is d×d."""
    if shared is None:
        found = fit_layer(w_v, w_proj, form, bound, sign)
    else:
        found = fit_grouped(w_v[::shared], w_proj.unflatten(0, (-1, shared)), form, bound, sign)
    return [found.theta, found.psi, *([] if found.phi is None else [found.phi])]
