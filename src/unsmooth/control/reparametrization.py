"""`reparametrize`: turn a model's value and projection weights into functions of Θ and ψ, in place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import nn

from unsmooth.control.biases import move_bias
from unsmooth.control.bounds import BOUNDS
from unsmooth.control.computed_once import attached
from unsmooth.control.forms import FORMS, get_form
from unsmooth.control.layers import Controllable, choose_layers
from unsmooth.control.modes import Mode
from unsmooth.control.norm_scale import watch_norms
from unsmooth.control.slots import Supplied, driven, supply
from unsmooth.control.spectral import ATTRIBUTE, SpectralControl
from unsmooth.errors import CheckpointError, OptionError, WeightsError
from unsmooth.models import view
from unsmooth.models.select import Layers

M = TypeVar("M", bound=nn.Module)
INITS = ("paper", "from_weights")


def reparametrize(
    model: M,
    mode: Mode = "sharpening",
    *,
    form: str = "eigen",
    layers: Layers = "all",
    init: str = "paper",
    std: float = 0.1,
    bound: str | None = None,
    reach: float | None = None,
    generator: torch.Generator | None = None,
) -> M:
    """Constrain the eigenvalues of the model's H to one sign, in place; returns the same model.

    H is the product of the value and projection weights of a head or layer.

    - `mode`: "sharpening" (Λ ≤ 0) or "smoothing" (Λ ≥ 0); a list or `{layer: mode}` mixes them ("plain" allowed).
    - `form`: "eigen" (section 4), "split" (footnote 2) or "symmetric" (the poster); see `forms`.
    - `layers`: "all", indices, or a pattern (`select_layers`); the others stay plain.
    - `init`: "paper" (appendix A: He for Θ, ψ ~ N(0, std²)) or "from_weights" (nearest admissible spectrum;
      the errors are in `control_of(model).fit`; b_proj takes up what changes of b_v W_proj, or else b_v).
    - `bound`: "clip", "abs", "tanh", "square" or "free"; by default the form's own.
    - `reach`: |Λ| stays below reach / s, s the scale of the norm before attention, followed in training (`norm_scale`);
      1 is what Corollary 3 asks of a block with a norm. With bound "tanh" (then the default) or "clip".

    Other biases stay as they are. `bake` undoes it with the same outputs. Θ, ψ (and Φ, see `forms`) are new parameters
    of the transformer inside the model, and train even where the weights were frozen: make the optimiser (and DDP, and
    `torch.compile`) afterwards.
    """
    if init not in INITS:
        raise OptionError.unknown("init", init, INITS)
    if reach is not None and init != "paper":
        raise OptionError("reach depends on data that training sees: it starts with init='paper'")
    used, picked, modes = choose_layers(model, mode, layers)
    control = _build(picked, modes, form, bound, reach)
    control.reset(std, generator)
    if init == "from_weights":
        _start_from_weights(control, picked)
    if reach is not None:
        watch_norms(control, list(used.values()))
    _attach(model, control, picked)
    return model


def controls_of(model: nn.Module) -> list[tuple[nn.Module, SpectralControl]]:
    """Every reparametrised part of the model, with its control."""
    return attached(model, ATTRIBUTE, SpectralControl)


def control_of(model: nn.Module) -> SpectralControl:
    """The model's `SpectralControl`."""
    found = controls_of(model)
    if not found:
        raise OptionError("this model is not reparametrised: call `reparametrize` first")
    if len(found) > 1:
        raise OptionError(f"{len(found)} parts of this model are reparametrised: pass one of them")
    return found[0][1]


def _build(
    picked: list[Controllable], modes: list[str], form: str, bound: str | None, reach: float | None
) -> SpectralControl:
    dims = {layer.dim for layer in picked}
    if len(dims) > 1:
        raise WeightsError(f"layers of different widths {sorted(dims)} cannot share one factorisation: select by width")
    kinds = {(w.dtype, w.device) for layer in picked for w in (layer.value.tensor(), layer.proj.tensor())}
    if len(kinds) > 1:
        found = ", ".join(sorted(f"{dtype} on {device}" for dtype, device in kinds))
        raise WeightsError(
            f"one batched factorisation needs all its weights in one dtype on one device, got {found}: "
            "move the model, or select layers"
        )
    weight = picked[0].proj.tensor()
    names, heads = [layer.name for layer in picked], [layer.heads for layer in picked]
    where: dict[str, Any] = {"device": weight.device, "dtype": weight.dtype}
    if not all(layer.square for layer in picked):
        where.update(_shape(picked, form))
    return SpectralControl(names, modes, heads, dims.pop(), form, bound, reach=reach, **where)


def _shape(picked: list[Controllable], form: str) -> dict[str, int]:
    """Value heads and their features where W_V is not d×d: the same in all layers, and no more than the form admits."""
    shapes = {(layer.heads, layer.kv_heads, layer.key) for layer in picked}
    if len(shapes) > 1:
        raise WeightsError(
            f"layers of different heads {sorted(shapes)} (query heads, value heads, features of each) cannot share one "
            "factorisation: select layers of one kind"
        )
    (_, kv_heads, key), first = shapes.pop(), picked[0]
    if kv_heads * key > first.dim and get_form(form).name != "split":
        raise WeightsError(
            f"{first.name}: form {form!r} needs linearly independent columns, and the {kv_heads} value heads of {key} "
            f"features have {kv_heads * key} in the width {first.dim}: use form 'split'"
        )
    return {"kv_heads": kv_heads, "key": key}


@torch.no_grad()
def _start_from_weights(control: SpectralControl, picked: list[Controllable]) -> None:
    """Fit every layer, then its biases: all errors come before the model is changed."""
    fits = [
        control.assign(index, layer.value.weight().mT, layer.proj.weight().mT) for index, layer in enumerate(picked)
    ]
    moves = [move_bias(layer, control.weights(index)[1]) for index, layer in enumerate(picked)]
    control.fit = tuple(replace(fit, bias=move.error if move else 0.0) for fit, move in zip(fits, moves, strict=True))
    for move in moves:
        if move:
            move.bias.copy_(move.new)


def _attach(model: nn.Module, control: SpectralControl, picked: list[Controllable]) -> None:
    for index, layer in enumerate(picked):
        supply(control, index, 0, layer.value)
        supply(control, index, 1, layer.proj)
    owner = view(model).backbone
    control.attach(model, owner, ATTRIBUTE, [layer.block for layer in picked])
    owner.register_load_state_dict_pre_hook(load_before)


def load_before(model: nn.Module, state: dict[str, Any], prefix: str, *rest: Any) -> None:
    """Let a plain checkpoint load where names match, and refuse one of another form, bound or mode.

    Of a plain fused weight the free rows are taken; controlled rows are left to Θ and ψ.
    """
    for path, _, name, part in driven(model, Supplied):
        key = f"{prefix}{path}.{name}"
        if key in state:
            free = part.rest(state.pop(key))
            if free.shape[0]:
                state[f"{prefix}{path}.parametrizations.{name}.original"] = free
    control: SpectralControl = getattr(model, ATTRIBUTE)
    # Checkpoints from before the recipe was kept say nothing about form and bound.
    state.setdefault(f"{prefix}{ATTRIBUTE}.recipe", control.recipe)
    for name, describe in (("sign", _modes), ("recipe", _recipe)):
        ours, saved = getattr(control, name), state.get(f"{prefix}{ATTRIBUTE}.{name}")
        # Rounded: an average over training steps (EMA) moves even constants by a rounding error.
        if saved is not None and (saved.shape != ours.shape or not torch.equal(saved.round().to(ours), ours.round())):
            raise CheckpointError(
                f"this checkpoint's layers are {describe(saved)}, the model's are {describe(ours)}: "
                "reparametrise the model with the same form, bound, modes and layers"
            )


def _modes(sign: torch.Tensor) -> str:
    return " ".join("sharpening" if value < 0 else "smoothing" for value in sign.flatten().tolist())


def _recipe(numbers: torch.Tensor) -> str:
    form, bound, *reach = numbers.tolist()
    within = "".join(f" within {each:g} / s" for each in reach)
    return f"of form {list(FORMS)[round(form)]!r} with bound {list(BOUNDS)[round(bound)]!r}{within}"
