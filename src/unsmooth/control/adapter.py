"""`adapt`: fine-tune a pretrained model with a low-rank update of H whose eigenvalues have a chosen sign and bound.

Every symmetric update of a head's `W_h = W_V^h W_proj^h` that leaves its values as they are is `W_V^h S W_V^hᵀ` with a
symmetric S. So the update is `U Λ Uᵀ`, with U an orthonormal basis of the span of `W_V^h C`, C a trained matrix of
key × rank: its eigenvalues are exactly Λ (and zeros), and it is written into W_proj alone, as `C R⁻¹ Λ Uᵀ` with
`W_V^h C = U R`. No value matrix is inverted, so nothing breaks where W_V is nearly singular or trained itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unsmooth.control.bounds import SIGNS, get_bound
from unsmooth.control.computed_once import ComputedOnce, attached
from unsmooth.control.draw import draw
from unsmooth.control.factor import dependent, orthogonal
from unsmooth.control.layers import Controllable, choose_layers, nonzero_scale
from unsmooth.control.modes import Mode
from unsmooth.control.slots import Added, Place, add, driven
from unsmooth.errors import CheckpointError, OptionError, WeightsError
from unsmooth.models import LayerView, view
from unsmooth.models.select import Layers
from unsmooth.models.storage import whole
from unsmooth.models.taps import find

M = TypeVar("M", bound=nn.Module)
ATTRIBUTE = "spectral_adapter"


@dataclass(frozen=True)
class Around:
    """What stands around a layer's W_V and W_proj, read anew in every pass: all of it may be trained."""

    value: Place
    norm: nn.Module | None  # before the values
    offset: float  # of its weight (Gemma's 1)
    centres: bool
    scale: tuple[nn.Module, str] | float  # LayerScale (its module and name), or a constant, after the projection

    def gain(self, dim: int, like: Tensor) -> Float[Tensor, " dim"]:
        """The norm's weight."""
        weight = getattr(self.norm, "weight", None)
        found = like.new_ones(dim) if weight is None else whole(weight).to(like.dtype)
        return found + self.offset if weight is not None and self.offset else found

    def sources(self) -> Iterable[Tensor]:
        """Parameters that the update depends on."""
        yield getattr(self.value.module, self.value.name)
        if (weight := getattr(self.norm, "weight", None)) is not None:
            yield weight
        if isinstance(self.scale, tuple):
            yield getattr(*self.scale)


class Adapter(ComputedOnce):
    """Stacked C (layer, head, key, rank) and ψ (layer, head, rank) of the adapted layers; Λ = ± bound · |tanh ψ|.

    ψ starts at 0, so the model starts as what it was. It is used like any module: `adapter.state_dict()` is all that
    was learned where the rest of the model is frozen.
    """

    sign: Tensor
    centres: Tensor

    def __init__(
        self, names: Sequence[str], modes: Sequence[str], shape: tuple[int, int, int], rank: int, bound: float,
        around: Sequence[Around], *, device: torch.device, dtype: torch.dtype,
    ) -> None:  # fmt: skip
        super().__init__(names, modes)
        heads, kv_heads, key = shape
        self.rank, self.bound, self.kv_heads = rank, bound, kv_heads
        self.shared, self._tanh = heads // kv_heads, get_bound("tanh")
        self._around = tuple(around)  # in a tuple: the model owns these modules
        self.c = nn.Parameter(torch.empty(len(names), heads, key, rank, device=device, dtype=dtype))
        self.psi = nn.Parameter(torch.zeros(len(names), heads, rank, device=device, dtype=dtype))
        sign = torch.tensor([SIGNS[mode] * bound for mode in modes], device=device, dtype=dtype)
        self.register_buffer("sign", sign[:, None, None])
        centres = torch.tensor([float(each.centres) for each in around], device=device, dtype=dtype)
        self.register_buffer("centres", centres[:, None, None], persistent=False)
        self.register_load_state_dict_pre_hook(_refuse_another)

    def sources(self, layer: int) -> Iterable[Tensor]:
        """C, ψ, and the values, norm and LayerScale that they act in."""
        return self.c, self.psi, *self._around[layer].sources()

    def eigenvalues(self) -> Float[Tensor, "layer head rank"]:
        """Those of every head's update that are not 0 by its rank."""
        return self._tanh.to_lambda(whole(self.psi), self.sign)

    def weights(self, layer: int | None = None) -> tuple[Float[Tensor, "*layer feature dim"]]:
        """What is added to W_proj (paper's orientation) of all layers in one call, or of one layer."""
        every = slice(None) if layer is None else slice(layer, layer + 1)
        c, psi, sign = whole(self.c)[every], whole(self.psi)[every], self.sign[every]
        work = torch.promote_types(c.dtype, torch.float32)
        with torch.autocast(c.device.type, enabled=False):
            c = c.to(work)
            eigenvalues = self._tanh.to_lambda(psi.to(work), sign.to(work))
            spread = self._values(every, work) @ c
            u = orthogonal(spread)
            # C R⁻¹: R = Uᵀ(W_V C) is upper triangular
            inside = torch.linalg.solve_triangular(u.mT @ spread, c, upper=True, left=False)
            outside = u.mT / self._scales(self._around[every], work)
            added = ((inside * eigenvalues[..., None, :]) @ outside).flatten(1, 2)
        return (added if layer is None else added[0],)

    def _values(self, every: slice, dtype: torch.dtype) -> Float[Tensor, "layer head dim key"]:
        """W_V of every query head with the norm before it folded in, as far as tokens have it in common."""
        around, centres = self._around[every], self.centres[every]
        values = torch.stack([whole(each.value.weight()) for each in around]).to(dtype).mT
        if any(each.norm is not None for each in around):
            values = values * torch.stack([each.gain(values.shape[1], values) for each in around])[..., None]
            values = values - centres.to(dtype) * values.mean(-2, keepdim=True)
        values = values.unflatten(-1, (self.kv_heads, -1)).transpose(1, 2)
        return values.repeat_interleave(self.shared, 1) if self.shared > 1 else values

    def _scales(self, around: Sequence[Around], dtype: torch.dtype) -> Tensor | float:
        """What stands between W_proj and the stream."""
        if isinstance(around[0].scale, float):
            return around[0].scale
        found = [whole(getattr(*each.scale)) for each in around if isinstance(each.scale, tuple)]
        return torch.stack(found).to(dtype)[:, None, None]

    @torch.no_grad()
    def check(self) -> None:
        """WeightsError with the layers' names where C or ψ is not finite, or W_V C has dependent columns."""
        finite = self.finite()
        spread = self._values(slice(None), torch.float64) @ whole(self.c).double()
        broken = ~finite | dependent(spread.nan_to_num().flatten(0, 1), inverted=False).unflatten(
            0, spread.shape[:2]
        ).any(1)
        if bool(broken.any()):
            raise WeightsError(
                f"the adapter of {self._named(broken)} holds NaN or infinity, or linearly dependent columns in W_V C: "
                "go back to an earlier checkpoint, or lower the learning rate"
            )

    def extra_repr(self) -> str:
        """Shown by `print(model)`."""
        heads = f"{self.c.shape[1]} of {self.c.shape[2]}"
        return f"rank={self.rank}, bound={self.bound:g}, heads={heads}, layers: {self.counted_modes()}"


def adapt(
    model: M,
    mode: Mode = "sharpening",
    *,
    rank: int = 8,
    bound: float = 1.0,
    layers: Layers = "all",
    folded: bool = True,
    generator: torch.Generator | None = None,
) -> M:
    """Add a trainable low-rank update to H of every head, in place, that starts at exactly 0; returns the same model.

    The update of each head's H is symmetric, of this `rank`, with eigenvalues in [−bound, 0] ("sharpening") or
    [0, bound] ("smoothing") whatever training does. So the update of Σ_h H_h has the same sign, and is at most
    heads × bound.

    - `mode`, `layers`: as in `reparametrize`; a list or `{layer: mode}` mixes modes ("plain" allowed).
    - `rank`: at most the features of a head; the adapter has heads × (features + 1) × rank parameters a layer.
    - `bound`: the largest |eigenvalue| of a head's update.
    - `folded`: the update of H with the norm's weight and centring and LayerScale folded in; False: of the
      bare weights.
    - `generator`: draws the directions C.

    What was frozen stays frozen and what was not trains along: `model.requires_grad_(False)` before leaves the adapter
    alone to train. Only W_proj changes, and with it what it makes of a value bias. `bake` merges it into plain weights.
    Make the optimiser (and DDP, and `torch.compile`) afterwards.

    >>> encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1).eval()
    >>> x = torch.randn(1, 5, 8)
    >>> before = encoder(x)
    >>> torch.equal(adapt(encoder, "sharpening", rank=2)(x), before)
    True
    >>> sum(p.numel() for p in adapter_of(encoder).parameters())  # 2 heads × (4 features + 1) × rank 2
    20
    """
    if not isinstance(bound, Real) or not 0 < bound < float("inf"):
        raise OptionError(f"bound {bound!r}: expected a positive number")
    used, picked, modes = choose_layers(model, mode, layers)
    around = [_around(place, layer, folded) for place, layer in zip(picked, used.values(), strict=True)]
    shape = _same(picked, around)
    if not isinstance(rank, int) or not 1 <= rank <= min(shape[2], picked[0].dim):
        raise OptionError(f"rank {rank!r}: expected 1 to {shape[2]}, the features of a head")
    weight = picked[0].proj.tensor()
    adapter = Adapter(
        list(used), modes, shape, rank, float(bound), around,
        device=weight.device, dtype=torch.promote_types(weight.dtype, torch.float32),
    )  # fmt: skip
    with torch.no_grad():
        draw(adapter.c, 1.0, generator)
    for index, layer in enumerate(picked):
        add(adapter, index, layer.proj)
    owner = view(model).backbone
    adapter.attach(model, owner, ATTRIBUTE, [layer.block for layer in picked])
    owner.register_load_state_dict_pre_hook(load_before_adapter)
    return model


def adapters_of(model: nn.Module) -> list[tuple[nn.Module, Adapter]]:
    """Every adapted part of the model, with its adapter."""
    return attached(model, ATTRIBUTE, Adapter)


def adapter_of(model: nn.Module) -> Adapter:
    """The model's adapter: `.eigenvalues()`, `.state_dict()`."""
    found = adapters_of(model)
    if len(found) != 1:
        raise OptionError(f"expected a model with one adapter (`adapt`), got {len(found)}")
    return found[0][1]


def load_before_adapter(model: nn.Module, state: dict[str, Tensor], prefix: str, *rest: object) -> None:
    """Let a plain checkpoint load where names match, and refuse another adapter before any weight is taken over."""
    _refuse_another(getattr(model, ATTRIBUTE), state, f"{prefix}{ATTRIBUTE}.")
    for path, _, name, _ in driven(model, Added):
        if (weight := state.pop(f"{prefix}{path}.{name}", None)) is not None:
            state[f"{prefix}{path}.parametrizations.{name}.original"] = weight


def _refuse_another(adapter: nn.Module, state: dict[str, Tensor], prefix: str, *rest: object) -> None:
    """CheckpointError for an adapter of other modes or another bound."""
    ours, saved = adapter.sign, state.get(f"{prefix}sign")
    assert isinstance(ours, Tensor)
    if saved is not None and (saved.shape != ours.shape or not torch.allclose(saved.to(ours), ours)):
        raise CheckpointError(
            f"this checkpoint's adapter has the signed bounds {saved.flatten().tolist()}, the model's "
            f"{ours.flatten().tolist()}: adapt the model with the same layers, modes and bound"
        )


def _around(place: Controllable, layer: LayerView, folded: bool) -> Around:
    weights = layer.weights()
    if not folded:
        return Around(place.value, None, 0.0, False, 1.0)
    norm = find(layer.block, layer.attention_row.norm) if weights.norm is not None else None
    scale = nonzero_scale(place.name, weights, "adapt")
    centres = weights.norm is not None and weights.norm.kind == "layer"
    held = 1.0 if scale is None else _holder(layer.block, scale) or float(scale[0])
    return Around(place.value, norm, layer.attention_row.norm_offset, centres, held)


def _holder(block: nn.Module, tensor: Tensor) -> tuple[nn.Module, str] | None:
    """The module and name of a parameter; None for a constant, the same for all features."""
    return next(
        ((module, name) for module in block.modules() for name, p in module._parameters.items() if p is tensor), None
    )


def _same(picked: Sequence[Controllable], around: Sequence[Around]) -> tuple[int, int, int]:
    """Query heads, value heads and features of each, the same in all layers as one batched call needs."""
    kinds = {
        (layer.heads, layer.kv_heads, layer.key, layer.dim, layer.proj.tensor().device,
         each.scale if isinstance(each.scale, float) else None)
        for layer, each in zip(picked, around, strict=True)
    }  # fmt: skip
    if len(kinds) > 1:
        raise WeightsError(
            f"{picked[0].name} and others differ in heads, width, device or LayerScale, and one adapter computes "
            "all its layers together: select layers of one kind"
        )
    return picked[0].heads, picked[0].kv_heads, picked[0].key
