"""The published fixes by name, and `apply_fix`, which puts one into a model."""

from __future__ import annotations

import inspect
from typing import Any, TypeVar

from torch import Tensor, nn

from unsmooth.control.fixes import attnscale, centered, contranorm, featscale, gfsa, neutreno
from unsmooth.control.fixes.base import AttentionFix, Fix, LayerShape
from unsmooth.control.fixes.explicit_attention import open_attention, refuse_closed
from unsmooth.control.layers import attention_layers
from unsmooth.errors import OptionError, WeightsError
from unsmooth.models import LayerView, ModelView, view
from unsmooth.models.reconstruction import result_spot
from unsmooth.models.select import Layers, select_layers
from unsmooth.models.storage import home
from unsmooth.models.taps import Spot

M = TypeVar("M", bound=nn.Module)

FIXES: dict[str, Fix] = {
    module.FIX.name: module.FIX for module in (attnscale, featscale, contranorm, neutreno, gfsa, centered)
}


def apply_fix(model: M, name: str, *, layers: Layers = "all", **options: Any) -> M:
    """Put a published fix into the model's layers, in place; returns the same model.

    The learned weights of a fix start where the model computes what it did before (`attnscale`, `featscale`,
    `gfsa`); `contranorm`, `neutreno` and `centered` change it at once. Options: `order` and
    `identity` (gfsa), `strength` (neutreno), `scale` and `temperature` (contranorm).
    """
    if name not in FIXES:
        raise OptionError.unknown("fix", name, FIXES)
    fix, v = FIXES[name], view(model)
    found = attention_layers(model)
    chosen = select_layers(layers, list(found))
    picked = [list(found.values())[index] for index in chosen]
    _refuse(v, fix, picked, shared=len(found) != len(v.layers))
    shapes = [LayerShape(index, len(found), v.width, layer.heads) for index, layer in zip(chosen, picked, strict=True)]
    for layer, module in zip(picked, _built(fix, shapes, options), strict=True):
        _attach(v, layer, fix, module.to(*home(layer.attention, model)))
    return model


def _refuse(v: ModelView, fix: Fix, layers: list[LayerView], shared: bool) -> None:
    """Errors before anything is changed."""
    if fix.name == "neutreno" and shared:
        raise WeightsError("neutreno compares layers, but this model's layers share their weights")
    if v.causal and fix.place != "attention":
        raise WeightsError(
            f"{fix.name} mixes all tokens, so in a causal model each would see the ones after it: use a fix of the "
            "attention matrix, such as attnscale"
        )
    for layer in layers:
        if hasattr(layer.attention, "fix"):
            there = type(layer.attention.fix).__name__
            raise OptionError(f"{layer.name} already has the fix {there}: apply one per model")
        if fix.place == "attention":
            refuse_closed(v, layer)
        elif fix.place == "norm":
            _norms(v, layer)


def _built(fix: Fix, shapes: list[LayerShape], options: dict[str, Any]) -> list[nn.Module]:
    try:
        return fix.build(shapes, **options)
    except TypeError as error:
        taken = inspect.signature(type(fix.build(shapes)[0])).parameters
        valid = [option for option in ("order", "identity", "strength", "scale", "temperature") if option in taken]
        raise OptionError(f"{fix.name} takes {', '.join(valid) or 'no options'}, got {', '.join(options)}") from error


def _attach(v: ModelView, layer: LayerView, fix: Fix, module: nn.Module) -> None:
    if isinstance(module, AttentionFix):
        open_attention(v, layer.attention, module)
        return
    layer.attention.add_module("fix", module)
    acting = _Acting(module, v.batch_first)
    if fix.place == "output":
        result_spot(layer).module.register_forward_hook(acting.on_output)
        return
    for spot in _norms(v, layer):
        spot.module.register_forward_pre_hook(acting.on_input)


def _norms(v: ModelView, layer: LayerView) -> list[Spot]:
    """The block's normalisations; after the sums in a post-norm family."""
    points = ("mid", "post") if v.family.placement == "post" else ("norm1", "norm2")
    spots = [spot for point in points if (spot := layer.spot(point)) is not None and spot.tap.side == "out"]
    spots = [spot for spot in spots if "norm" in type(spot.module).__name__.lower()]
    if not spots:
        raise WeightsError(f"{layer.name} of family {v.family.name!r} has no normalisation to put a fix before")
    return spots


class _Acting:
    """A fix as a hook: on the features (first item) of a module's output or input, batch first."""

    def __init__(self, fix: nn.Module, batch_first: bool) -> None:
        self.fix, self.batch_first = fix, batch_first

    def on_output(self, module: nn.Module, args: Any, output: Any) -> Any:
        """After a module."""
        if isinstance(output, Tensor):
            return self._act(output)
        return (self._act(output[0]), *output[1:])

    def on_input(self, module: nn.Module, args: Any) -> Any:
        """Before a module."""
        return (self._act(args[0]), *args[1:])

    def _act(self, x: Tensor) -> Tensor:
        if x.is_nested:
            raise WeightsError(
                f"{type(self.fix).__name__} needs sequences of one length, got a nested tensor: build the "
                "TransformerEncoder with enable_nested_tensor=False"
            )
        out: Tensor = self.fix(x) if self.batch_first else self.fix(x.transpose(0, 1)).transpose(0, 1)
        return out
