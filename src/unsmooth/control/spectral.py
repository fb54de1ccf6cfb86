"""The module that holds Θ and ψ of all controlled layers and turns them into weights, all in one batched call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unsmooth.control.bounds import BOUNDS, SIGNS, get_bound
from unsmooth.control.computed_once import ComputedOnce
from unsmooth.control.draw import draw
from unsmooth.control.factor import dependent, orthogonal
from unsmooth.control.fitting import Fit, nearest
from unsmooth.control.fitting.layer import distances
from unsmooth.control.forms import FORMS, get_form
from unsmooth.errors import OptionError, WeightsError
from unsmooth.models.storage import refuse_sharded, whole

#: The attribute of the model under which its `SpectralControl` is registered.
ATTRIBUTE = "spectral_control"

Pair = tuple[Float[Tensor, "*layer dim value"], Float[Tensor, "*layer feature dim"]]


class SpectralControl(ComputedOnce):
    """Stacked Θ (layer, d, d) and ψ (layer, d) of the controlled layers, and the weights they stand for.

    With `kv_heads` value heads of `key` features (where W_V is not d×d): Θ (layer, d, kv_heads·key),
    ψ (layer, heads·key), and for form `eigen`, where Θ is tall, Φ (layer, heads·key, d).

    The parametrisation runs in float32 (float64 if the parameters are) with autocast off.
    """

    sign: Tensor
    recipe: Tensor
    scale: Tensor
    phi: nn.Parameter | None

    def __init__(
        self,
        names: Sequence[str],
        modes: Sequence[str],
        heads: Sequence[int],
        dim: int,
        form: str,
        bound: str | None = None,
        *,
        reach: float | None = None,
        kv_heads: int | None = None,
        key: int | None = None,
        device: torch.device | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__(names, modes)
        self.heads, self.dim = tuple(heads), dim
        self.form = get_form(form)
        self.bound = get_bound(bound or (self.form.bound if reach is None else "tanh"))
        self.reach = reach
        if reach is not None and (self.bound.limit != 1 or not 0 < reach < float("inf")):
            raise OptionError(f"reach {reach}: expected a positive number, with bound 'tanh' or 'clip'")
        self.kv_heads, self.key = kv_heads, key
        self.shared = heads[0] // kv_heads if kv_heads else 1  # query heads per value head
        values = kv_heads * key if kv_heads and key else dim
        features = values * self.shared
        self.theta = nn.Parameter(torch.empty(len(names), dim, values, device=device, dtype=dtype))
        self.psi = nn.Parameter(torch.empty(len(names), features, device=device, dtype=dtype))
        outside = self.form.outside and values < dim
        self.phi = nn.Parameter(torch.empty(len(names), features, dim, device=device, dtype=dtype)) if outside else None
        sign = torch.tensor([SIGNS[mode] for mode in modes], device=device, dtype=dtype)
        self.register_buffer("sign", sign[:, None])
        # Which form and bound, as numbers: a checkpoint of another form has the same names and shapes.
        recipe: list[float] = [list(FORMS).index(self.form.name), list(BOUNDS).index(self.bound.name)]
        if reach is not None:
            recipe = [*recipe, reach]
            self.register_buffer("scale", torch.ones(len(names), 1, device=device, dtype=dtype))
        self.register_buffer("recipe", torch.tensor(recipe, device=device, dtype=dtype))
        #: Relative errors of `from_weights`, per layer; None after any other initialisation.
        self.fit: tuple[Fit, ...] | None = None

    def reset(self, std: float = 0.1, generator: torch.Generator | None = None) -> None:
        """Appendix A: He-normal Θ (variance 2/d) and ψ ~ N(0, std²); Φ like ψ times Θ."""
        if not 0 < std < float("inf"):
            raise OptionError(f"std {std}: expected a positive number; ψ = 0 has no slope, so it could never move")
        refuse_sharded(self)
        with torch.no_grad():
            draw(self.theta, (2.0 / self.dim) ** 0.5, generator)
            draw(self.psi, std, generator)
            if self.phi is not None:
                draw(self.phi, std * (2.0 / self.dim) ** 0.5, generator)
            if self.form.name == "symmetric":
                # √2 times its own Q: the same weights and column lengths, at condition number 1. From a He-normal Θ
                # training meets nearly dependent columns again and again, where dQ/dΘ ~ 1/r_jj explodes.
                self.theta.copy_(2**0.5 * orthogonal(self.theta))
        self.fit = None

    @torch.no_grad()
    def assign(self, layer: int, w_v: Float[Tensor, "dim value"], w_proj: Float[Tensor, "feature dim"]) -> Fit:
        """Set one layer's Θ, ψ and Φ to the admissible weights nearest to these; returns the errors of the fit.

        Exact where the constraint already holds: assigning what `weights(layer)` gave changes nothing.
        """
        refuse_sharded(self)
        expected = [tuple(self.theta.shape[1:]), (self.psi.shape[1], self.dim)]
        came = [tuple(w_v.shape), tuple(w_proj.shape)]
        if came != expected:
            raise WeightsError(
                f"{self.names[layer]}: expected W_V and W_proj of shapes {expected} (heads side by side), got {came}"
            )
        if not bool(w_v.isfinite().all() & w_proj.isfinite().all()):
            raise WeightsError(f"{self.names[layer]}: expected finite W_V and W_proj, got NaN or infinity")
        given = self._heads(layer, w_v, w_proj)
        sign, shared = self.sign[layer].double().cpu(), None if self.kv_heads is None else self.shared
        found = nearest(*given, self.form, self.bound, sign, shared)
        before = [parameter[layer].clone() for parameter in self.parameters()]
        self._set(layer, found)
        # Measured on what is stored: rounding Θ to its dtype costs up to cond(Θ) times eps.
        errors = distances(self._heads(layer, *self.weights(layer)), given)
        if not all(map(isfinite, errors)):
            self._set(layer, before)
            raise WeightsError(
                f"{self.names[layer]}: no weights of form {self.form.name!r} are near these, because their "
                "eigenvectors are linearly dependent: use form 'split' or 'symmetric', or init='paper'"
            )
        return Fit(self.names[layer], *errors)

    def _set(self, layer: int, values: Iterable[Tensor]) -> None:
        for parameter, value in zip(self.parameters(), values, strict=True):
            parameter[layer].copy_(value)

    def _heads(self, layer: int, w_v: Tensor, w_proj: Tensor) -> Pair:
        """Both weights per head, (head, dim, key) and (head, key, dim), in float64 on the CPU."""
        heads = self.heads[layer]
        per_v = w_v.detach().double().cpu().unflatten(1, (heads // self.shared, -1)).transpose(0, 1)
        return per_v.repeat_interleave(self.shared, 0), w_proj.detach().double().cpu().unflatten(0, (heads, -1))

    def eigenvalues(self) -> Float[Tensor, "layer feature"]:
        """diag Λ of every layer, head after head."""
        return self._lambda(whole(self.psi), self.sign, slice(None))

    def _lambda(self, psi: Tensor, sign: Tensor, every: slice | int) -> Tensor:
        """Λ of these layers; with `reach`, at most reach / s, s the scale of the norm before attention.

        An equal share of the interval for each of the heads whose eigenvalues add up, so that their sum is in it.
        """
        eigenvalues = self.bound.to_lambda(psi, sign)
        if self.reach is not None:
            eigenvalues = eigenvalues * (self.reach / self.scale[every].to(eigenvalues.dtype))
        return eigenvalues if self.shared == 1 else eigenvalues / self.shared

    def weights(self, layer: int | None = None) -> Pair:
        """W_V and W_proj (paper's orientation) of all layers in one call, or of one layer."""
        every = slice(None) if layer is None else layer
        theta, psi, sign = whole(self.theta)[every], whole(self.psi)[every], self.sign[every]
        work = torch.promote_types(theta.dtype, torch.float32)
        phi = None if self.phi is None else whole(self.phi)[every].to(work)
        # qr, cholesky and solves have no bfloat16 kernels, and an orthogonal weight needs float32.
        with torch.autocast(theta.device.type, enabled=False):
            eigenvalues = self._lambda(psi.to(work), sign.to(work), every)
            w_v, w_proj = self.form.assemble(theta.to(work), eigenvalues, self.kv_heads or 1, phi)
        return w_v.to(theta.dtype), w_proj.to(theta.dtype)

    def forward(self) -> Pair:
        """`weights()` of all layers."""
        return self.weights()

    def suspicious(self, weights: tuple[Tensor, ...]) -> bool:
        """Whether weights are not finite, or those of form `eigen` so large that they are noise."""
        return super().suspicious(weights) or (
            self.form.name == "eigen" and bool(weights[0].abs().max() * torch.finfo(weights[0].dtype).eps > 1)
        )

    @torch.no_grad()
    def check(self) -> None:
        """Raise `WeightsError` with the layers' names where Θ is singular or not finite (synchronises)."""
        finite = self.finite()
        if not bool(finite.all()):
            raise WeightsError(
                f"Θ or ψ{'' if self.phi is None else ' or Φ'} of {self._named(~finite)} holds NaN or infinity: "
                "expected finite parameters; "
                "go back to an earlier checkpoint, or lower the learning rate"
            )
        if self.form.name == "split":
            return  # VᵀV is never inverted
        theta = whole(self.theta).to(torch.promote_types(self.theta.dtype, torch.float32))
        singular = dependent(theta, inverted=self.form.name == "eigen")
        if bool(singular.any()):
            raise WeightsError(
                f"Θ of {self._named(singular)} is singular: form {self.form.name!r} needs linearly independent "
                "columns; re-initialise these layers (`reset`), lower the learning rate, or use form 'split'"
            )

    def extra_repr(self) -> str:
        """Shown by `print(model)`."""
        which = self.counted_modes()
        groups = f", {self.kv_heads} value heads of {self.key}" if self.kv_heads else ""
        reach = "" if self.reach is None else f", reach={self.reach:g} / s"
        return f"form={self.form.name}, bound={self.bound.name}{reach}, dim={self.dim}{groups}, layers: {which}"
