"""Watch the conditioning of a reparametrised model while it trains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isnan, nan
from statistics import mean

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unsmooth.control.factor import gram_cholesky
from unsmooth.control.reparametrization import control_of
from unsmooth.control.spectral import SpectralControl
from unsmooth.models.storage import whole

_POWER_STEPS = 16


@dataclass(frozen=True)
class ControlReading:
    """One look at the control: per layer, on the device, nothing synchronised until a number is asked for.

    `condition` is that of Θ (which is V in the forms `eigen` and `split`; in `symmetric` V itself is orthogonal,
    and Θ's is what its factorisation meets); NaN where Θ is singular. `saturated` is the share of ψ without
    gradient, `smallest` and `largest` those of |λ|.
    """

    names: tuple[str, ...]
    condition: Float[Tensor, " layer"]
    saturated: Float[Tensor, " layer"]
    smallest: Float[Tensor, " layer"]
    largest: Float[Tensor, " layer"]

    def as_dict(self, prefix: str = "control") -> dict[str, float]:
        """Flat numbers for a log: each quantity per layer, and over all layers (synchronises once).

        Over all layers: the mean of `saturated`, the worst of the others, and NaN if any layer's is.
        """
        overall: dict[str, Callable[[list[float]], float]]
        overall = {"condition": max, "saturated": mean, "smallest": min, "largest": max}
        table = torch.stack([getattr(self, quantity).float() for quantity in overall]).tolist()
        out: dict[str, float] = {}
        for (quantity, over), values in zip(overall.items(), table, strict=True):
            out[f"{prefix}/{quantity}"] = nan if any(map(isnan, values)) else over(values)
            out.update({f"{prefix}/{quantity}/{n}": v for n, v in zip(self.names, values, strict=True)})
        return out


class ControlMonitor:
    """Condition number of V, share of saturated ψ and extreme |λ| of every controlled layer, per step.

    The condition number comes from 16 power iterations on ΘᵀΘ and its inverse, batched over layers: a lower bound,
    within a few per cent of the truth, that never synchronises. `exact=True` takes singular values instead.
    """

    def __init__(self, model: nn.Module, *, exact: bool = False) -> None:
        self._model, self._exact = model, exact
        control_of(model)  # refuse a plain model now, not at the first step

    @property
    def control(self) -> SpectralControl:
        """The model's `SpectralControl`."""
        return control_of(self._model)

    @torch.no_grad()
    def read(self) -> ControlReading:
        """The state now."""
        control = self.control
        theta, psi = whole(control.theta), whole(control.psi)
        sizes = control.eigenvalues().abs()
        return ControlReading(
            names=control.names,
            condition=_exact(theta) if self._exact else _estimate(theta),
            saturated=control.bound.saturated(psi, control.sign).float().mean(-1),
            smallest=sizes.amin(-1),
            largest=sizes.amax(-1),
        )

    def check(self) -> None:
        """WeightsError with the layers' names where Θ is singular or not finite (synchronises)."""
        self.control.check()


def _exact(theta: Float[Tensor, "layer dim value"]) -> Float[Tensor, " layer"]:
    finite = theta.isfinite().flatten(1).all(1)
    work = theta.to(torch.promote_types(theta.dtype, torch.float32)).where(finite[:, None, None], 0.0)
    values = torch.linalg.svdvals(work)
    return values[:, 0] / values[:, -1]  # 0/0 where Θ is not finite


def _estimate(theta: Float[Tensor, "layer dim value"]) -> Float[Tensor, " layer"]:
    upright = theta if theta.shape[1] >= theta.shape[2] else theta.mT
    work = upright.to(torch.promote_types(theta.dtype, torch.float32))
    q, r_inv, _ = gram_cholesky(work)
    # Θ⁻¹ = R⁻¹Qᵀ, so ‖R⁻¹‖₂ = 1/σ_min; a singular Θ has NaN in Q, and should have it in the result.
    return _norm(work.to(q.dtype)) * _norm(r_inv) + 0 * q[:, 0, 0]


def _norm(a: Float[Tensor, "layer dim value"]) -> Float[Tensor, " layer"]:
    """Spectral norms by power iteration, from a fixed start that no structure is orthogonal to."""
    dim = a.shape[-1]
    x = torch.linspace(1.0, 2.0, dim, dtype=a.dtype, device=a.device).cos().expand(len(a), dim)[..., None]
    for _ in range(_POWER_STEPS):
        x = a.mT @ (a @ (x / x.norm(dim=1, keepdim=True)))
    return x.norm(dim=1).squeeze(-1).sqrt()
