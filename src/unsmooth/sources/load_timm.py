"""timm models by name: from the hub, from a local file, or with random weights."""

from __future__ import annotations

import difflib
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from unsmooth.errors import CheckpointError, MissingExtraError, OptionError, UnknownModelError, first_line
from unsmooth.models.taps import find
from unsmooth.sources.loaded import ImageInput
from unsmooth.sources.state_files import load_state, read_state

#: Options of `timm.create_model` that read weights from a place of their own.
_FILES = ("checkpoint_path", "pretrained", "pretrained_cfg", "pretrained_cfg_overlay")


def load_timm(
    name: str, weights: str | Path | None, random_init: bool, options: Mapping[str, Any]
) -> tuple[nn.Module, ImageInput]:
    """The model and its preprocessing; `options` go to the model's constructor."""
    _check_name(name)
    _refuse_files(name, options)
    if random_init:
        model = _create(name, options)
    elif weights is not None:
        state = read_state(weights)
        model = _create(name, {**_inferred(name, options, state), **options})
        load_state(model, _converted(model, state, str(weights)), str(weights))
    else:
        model = _from_hub(name, options)
    return model, image_input(model)


def create(name: str, options: Mapping[str, Any]) -> nn.Module:
    """A timm model with random weights, as a file describes it: such a name never leads to the hub or a folder.

    OptionError for an option that it does not take, or that would read a file.
    """
    if not isinstance(name, str) or ":" in name:
        raise CheckpointError(f"expected the name of a timm model, got {name!r}: a file must not name other sources")
    _check_name(name)
    _refuse_files(name, options)
    return _create(name, options)


def _refuse_files(name: str, options: Mapping[str, Any]) -> None:
    """Some releases of timm load these as pickles, and run what is in them."""
    for option in _FILES:
        if option in options:
            raise OptionError(f"timm:{name}: {option!r} is no option here: give weights by --weights FILE (weights=)")


def _create(name: str, options: Mapping[str, Any], pretrained: bool = False) -> nn.Module:
    timm = _import_timm(name)
    try:
        model: nn.Module = timm.create_model(name, pretrained=pretrained, **options)
    except (TypeError, ValueError, AssertionError) as error:
        raise OptionError(f"timm:{name} does not take these options {dict(options)}: {error}") from error
    return model


def image_input(model: nn.Module) -> ImageInput:
    """Preprocessing that timm records for the weights, at the size the model was built for."""
    import timm.data

    config = timm.data.resolve_model_data_config(model)
    built = find(model, "patch_embed.img_size")
    return ImageInput(
        size=int(built[0] if isinstance(built, tuple | list) else config["input_size"][-1]),
        mean=tuple(config["mean"]),
        std=tuple(config["std"]),
        interpolation=str(config["interpolation"]),
        crop=float(config["crop_pct"]),
        squash=config["crop_mode"] == "squash",
    )


def _import_timm(name: str) -> ModuleType:
    try:
        import timm
    except ImportError as error:
        raise MissingExtraError.needed("timm", "vision", f"loading timm:{name}") from error
    return timm


def _check_name(name: str) -> None:
    timm = _import_timm(name)
    base = name.partition(".")[0]
    if name.startswith("hf-hub:") or timm.is_model(base):
        return
    near = difflib.get_close_matches(base, timm.list_models(), n=5)
    raise UnknownModelError(
        f"timm {timm.__version__} has no model {base!r}"
        + (f"; nearest names: {', '.join(near)}" if near else "; see timm.list_models()")
    )


def _from_hub(name: str, options: Mapping[str, Any]) -> nn.Module:
    try:
        return _create(name, options, pretrained=True)
    except (OSError, RuntimeError) as error:
        raise CheckpointError(
            f"the weights of timm:{name} are neither in the local cache nor could they be fetched "
            f"({first_line(error)}). Without a network give them with --weights FILE (weights=...), "
            "or take random ones with --random-init (random_init=True)"
        ) from error


def _inferred(name: str, options: Mapping[str, Any], state: Mapping[str, Tensor]) -> dict[str, Any]:
    """Constructor options that the weights reveal: classes from the head, image size from the positions."""
    found: dict[str, Any] = {}
    heads = [state[key] for key in ("head.weight", "head.fc.weight") if key in state]
    found["num_classes"] = heads[0].shape[0] if heads else 0
    model = outline(name, {**found, **options})
    patch = find(model, "patch_embed.patch_size")
    own, stored = find(model, "pos_embed"), state.get("pos_embed")
    if "img_size" in options or patch is None or stored is None or own is None or own.shape == stored.shape:
        return found
    prefix = own.shape[1] - find(model, "patch_embed.num_patches")
    side = math.isqrt(max(stored.shape[1] - prefix, 0))
    if side > 0 and side * side == stored.shape[1] - prefix:
        found["img_size"] = side * int(patch[0])
    return found


def outline(name: str, options: Mapping[str, Any]) -> nn.Module:
    """The model without memory for its weights, where this timm can build one."""
    try:
        with torch.device("meta"):
            return _create(name, options)
    except (RuntimeError, NotImplementedError):
        return _create(name, options)


def _converted(model: nn.Module, state: dict[str, Tensor], source: str) -> dict[str, Tensor]:
    """timm's own conversion of foreign names and of positions for another image size, where it has one."""
    convert = getattr(sys.modules[type(model).__module__], "checkpoint_filter_fn", None)
    try:
        return dict(convert(state, model)) if convert is not None else state
    except Exception as error:  # it trusts names and shapes
        raise CheckpointError(
            f"{source} does not fit {type(model).__name__}: timm cannot convert it ({type(error).__name__}: {error}). "
            "Check the model's name, and its options (img_size, num_classes, …)"
        ) from error
