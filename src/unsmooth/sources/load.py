"""A model by reference: `timm:NAME`, `hf:NAME_OR_FOLDER[@REVISION][#PART]`, `zoo:NAME`, or a folder of `train`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch

from unsmooth.errors import OptionError
from unsmooth.models.taps import find
from unsmooth.sources.loaded import ImageInput, LoadedModel
from unsmooth.sources.trained import is_text, load_trained, trained_folder

SCHEMES = ("timm", "hf", "zoo")


def load_model(
    reference: str | Path,
    weights: str | Path | None = None,
    *,
    random_init: bool = False,
    device: str | torch.device = "cpu",
    dtype: torch.dtype | None = torch.float32,
    options: Mapping[str, Any] | None = None,
    device_map: str | Mapping[str, Any] | None = None,
) -> LoadedModel:
    """Load a model in eval mode, with its tokenizer or image preprocessing.

    `reference` is `timm:NAME`, `hf:NAME_OR_FOLDER[@REVISION][#PART]`, `zoo:NAME` or a folder that `train` wrote.
    `weights` is a local file for a timm or hf model, `options` go to the model's constructor or configuration, and
    `random_init` needs no weights at all. `dtype=None` keeps what is stored. `device_map` ("auto", or accelerate's map)
    spreads a Hugging Face model over devices, CPU memory and disk while it is read.
    """
    if not isinstance(reference, str | os.PathLike):
        raise OptionError(
            f"expected a model by reference, such as 'timm:NAME' or a folder, got {type(reference).__name__}: a model "
            "in memory needs no loading"
        )
    if weights is not None and random_init:
        raise OptionError("expected either weights or random_init (--random-init), got both")
    if device_map is not None and (not str(reference).startswith("hf:") or weights is not None or random_init):
        raise OptionError(
            f"device_map (--device-map) spreads hf: models while their own weights are read, and {reference} is "
            "another kind, or has weights or random_init beside it: give a device instead"
        )
    loaded = _load(str(reference), weights, random_init, dict(options or {}), dtype, device_map)
    loaded.model.eval()
    if device_map is not None:  # every weight is where it belongs, in the dtype asked for
        return loaded
    loaded.model.to(device=device)
    # Of quantised weights the dtype is the format: the library refuses others.
    if dtype is not None and not getattr(loaded.model, "is_quantized", False):
        loaded.model.to(dtype=dtype)
    if dtype is torch.float64 and find(loaded.model, "config._experts_implementation") == "grouped_mm":
        cast(Any, loaded.model).set_experts_implementation("eager")  # the fused product of experts knows no float64
    return loaded


def _load(
    reference: str,
    weights: str | Path | None,
    random_init: bool,
    options: dict[str, Any],
    dtype: torch.dtype | None,
    device_map: Any,
) -> LoadedModel:
    scheme, colon, name = reference.partition(":")
    if colon and scheme == "timm":
        from unsmooth.sources.load_timm import load_timm

        model, images = load_timm(name, weights, random_init, options)
        return LoadedModel(model, reference, "images", image_input=images)
    if colon and scheme == "hf":
        from unsmooth.sources.load_hf import load_hf

        return load_hf(reference, name, weights, random_init, options, dtype, device_map)
    if weights is not None or random_init or options:
        raise OptionError(
            f"{reference}: weights, random_init and options (--weights, --random-init, --model-option) are for timm: "
            "and hf: models only: leave them out"
        )
    if (colon and scheme == "zoo") or os.path.exists(reference):
        if is_text(folder := trained_folder(reference)):
            from unsmooth.sources.load_hf import load_hf

            return load_hf(reference, str(folder))
        model, config = load_trained(reference)
        size = int(config["arguments"].get("img_size", 224))
        crop = float(config.get("crop", 1.0))
        images = ImageInput(size=size, mean=tuple(config["mean"]), std=tuple(config["std"]), crop=crop)
        return LoadedModel(model, reference, "images", image_input=images)
    raise OptionError(
        f"expected a model as {', '.join(f'{s}:NAME' for s in SCHEMES)} or the path of a checkpoint, got "
        f"{reference!r}" + (f": no scheme {scheme!r}" if colon else ", and there is no such path")
    )
