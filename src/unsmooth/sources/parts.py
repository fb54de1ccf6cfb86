"""A part of a model by its path (`hf:NAME#model.vision_model`), and what kind of input a module takes."""

from __future__ import annotations

import inspect
import os
from typing import Any

from torch import nn

from unsmooth.errors import OptionError
from unsmooth.models.registry import towers
from unsmooth.sources.loaded import Modality

_MODALITY: dict[str, Modality] = {
    "pixel_values": "images",
    "input_ids": "text",
    "input_features": "audio",
    "input_values": "audio",
    "pixel_values_videos": "video",
}


def split_mark(name: str, mark: str) -> tuple[str, str]:
    """The name and what stands after the mark; a folder that has the mark in its own name is not cut.

    >>> split_mark("openai/clip-vit-base-patch32#text_model", "#"), split_mark("gpt2", "@")
    (('openai/clip-vit-base-patch32', 'text_model'), ('gpt2', ''))
    """
    if os.path.exists(name):
        return name, ""
    whole, _, after = name.partition(mark)
    return whole, after


def take_part(model: nn.Module, part: str, name: str) -> nn.Module:
    """The module at that path; OptionError naming the transformers inside if there is none."""
    try:
        return model.get_submodule(part)
    except AttributeError as error:
        known = ", ".join(path for path in towers(model) if path)
        raise OptionError(
            f"{name} ({type(model).__name__}) has no part {part!r}" + (f": it holds {known}" if known else "")
        ) from error


def modality_of(model: nn.Module, config: Any, name: str) -> Modality:
    """What the module takes, by the name of its main input; by its signature where that name is only inherited."""
    takes = list(inspect.signature(model.forward).parameters)
    main = str(getattr(model, "main_input_name", ""))
    if not set(takes) - {"args", "kwargs"}:  # a signature that says nothing
        takes = [main]
    known = main if main in takes else next((each for each in takes if each in _MODALITY), "")
    if known not in _MODALITY:
        raise OptionError(
            f"{name}: {type(model).__name__} takes {', '.join(takes[:3])}, which cannot be made from data: "
            f"expected one of {', '.join(_MODALITY)}. Give the part around it"
        )
    modality = _MODALITY[known]
    return "video" if modality == "images" and hasattr(config, "num_frames") else modality
