"""The layers of a model, and where the weights of those to be controlled live."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from unsmooth.control.computed_once import ComputedOnce
from unsmooth.control.modes import Mode, select_modes
from unsmooth.control.slots import Place
from unsmooth.errors import OptionError, WeightsError
from unsmooth.models import LayerView, view
from unsmooth.models.family import Slot
from unsmooth.models.fused_rows import rows_of
from unsmooth.models.select import Layers, attention_names, select_layers
from unsmooth.models.storage import refuse_computed, refuse_sharded, refuse_unreadable
from unsmooth.models.view import module_of
from unsmooth.models.weights import HeadWeights, slot_of
from unsmooth.models.wrappers import refuse_compiled


@dataclass(frozen=True)
class Controllable:
    """One attention module: its name, block, query and value heads of `key` features, width, places, and b_v.

    b_v is that of the query heads: the same for those that share a value head.
    """

    name: str
    block: nn.Module
    heads: int
    kv_heads: int
    key: int
    dim: int
    value: Place
    proj: Place
    b_v: Float[Tensor, " feature"] | None
    sink: bool = False  # rows of A do not sum to 1

    @property
    def square(self) -> bool:
        """Whether W_V and W_proj are d×d."""
        return self.heads == self.kv_heads and self.heads * self.key == self.dim


def attention_layers(model: nn.Module) -> dict[str, LayerView]:
    """Every attention module by its name in the model, in order of execution; a shared one once."""
    refuse_sharded(model)
    refuse_compiled(model)
    passes = view(model).layers
    layers: dict[str, LayerView] = {}
    for name, layer in zip(attention_names(model, passes), passes, strict=True):
        layers.setdefault(name, layer)
    return layers


def choose_layers(
    model: nn.Module, mode: Mode, layers: Layers
) -> tuple[dict[str, LayerView], list[Controllable], list[str]]:
    """The layers that are to be controlled, by name, where their weights are, and their modes; all errors come here."""
    if any(isinstance(part, ComputedOnce) for part in module_of(model).modules()):
        raise OptionError("this model is already reparametrised or adapted: call `bake` first")
    found = attention_layers(model)
    if isinstance(view(model).backbone, nn.Sequential):
        raise OptionError("a Sequential would call what is added to it: put it into a module of its own")
    modes = select_modes(mode, select_layers(layers, list(found)))
    if not modes:
        raise OptionError("no layer is left to control: `layers` and `mode` leave every layer plain")
    used = {name: layer for index, (name, layer) in enumerate(found.items()) if index in modes}
    picked = [controllable(name, layer) for name, layer in used.items()]
    refuse_tied(model, picked)
    return used, picked, list(modes.values())


def controllable(name: str, layer: LayerView) -> Controllable:
    """Where the layer's weights are; WeightsError, with its name, if it has none."""
    weights = layer.weights()  # also refuses attention that is no sum of A_h X W_V^h W_proj^h
    heads, dim, key = weights.w_v.shape
    if weights.w_proj.shape != (heads, key, dim):
        raise WeightsError(
            f"{name}: expected a projection from the {heads} heads of {key} features back to the width {dim} that "
            f"values read, got {tuple(weights.w_proj.shape)} (head, key, dim)"
        )
    row = layer.attention_row
    value, proj = _place(name, layer, row.value), _place(name, layer, row.proj)
    b_v = None if weights.b_v is None else weights.b_v.detach().flatten()
    return Controllable(name, layer.block, heads, layer.kv_heads, key, dim, value, proj, b_v, layer.sink)


def refuse_tied(model: nn.Module, layers: Sequence[Controllable]) -> None:
    """WeightsError where a weight has a second owner: both would have to be driven by one Θ and ψ."""
    owners = Counter(id(p) for module in model.modules() for p in module._parameters.values())
    for layer in layers:
        for place in (layer.value, layer.proj):
            if owners[id(getattr(place.module, place.name))] > 1:
                raise WeightsError(
                    f"{layer.name}: {place.name!r} is one parameter with that of another module (tied weights): leave "
                    "the layer out, share the whole attention module instead, or give each a copy"
                )


def nonzero_scale(name: str, weights: HeadWeights, verb: str) -> Tensor | None:
    """What LayerScale does behind W_proj, if there is one; WeightsError where nothing could be divided by it."""
    scale = weights.out_scale
    if weights.out_norm is not None or (scale is not None and not bool((scale != 0).all())):
        raise WeightsError(
            f"{name}: a norm on the attention's output, or a LayerScale of 0, stands between W_proj and the stream: "
            f"{verb} the bare weights (folded=False)"
        )
    return scale


def _place(name: str, layer: LayerView, slots: Slot | tuple[Slot, ...]) -> Place:
    found = slot_of(layer.block, slots)
    if found is None:
        raise WeightsError(f"{name} keeps no plain weight tensor that could be parametrised: leave the layer out")
    slot, owner, tensor = found
    weight: Any = getattr(owner, tensor, None)
    refuse_unreadable(weight, owner, f"{layer.name}: {slot.path}.{slot.weight}")
    refuse_computed(owner, tensor, f"{name}: {tensor!r}")
    rows = rows_of(layer, slot, weight.shape[1 if slot.transposed else 0])
    return Place(owner, tensor, rows, slot.transposed)
