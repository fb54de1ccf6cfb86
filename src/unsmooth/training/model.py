"""Models of a recipe: built by timm, saved as a folder with weights and a small configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

from unsmooth.control import apply_fix
from unsmooth.errors import CheckpointError, MissingExtraError, OptionError
from unsmooth.sources.files import read_json, write_atomically
from unsmooth.training.recipes import Recipe
from unsmooth.training.variants import Variant

SCHEMA = "unsmooth-model/1"
WEIGHTS, CONFIG = "model.safetensors", "config.json"


def timm_arguments(recipe: Recipe) -> dict[str, Any]:
    """What differs from the timm model's defaults."""
    return {
        "img_size": recipe.image_size,
        "patch_size": recipe.patch_size,
        "embed_dim": recipe.width,
        "depth": recipe.depth,
        "num_heads": recipe.heads,
        "qkv_bias": recipe.qkv_bias,
        "num_classes": recipe.classes,
    }


def build_model(recipe: Recipe, seed: int) -> nn.Module:
    """A randomly initialised timm VisionTransformer; the same seed gives the same weights."""
    state = torch.get_rng_state()
    torch.manual_seed(seed)
    try:
        return _create(recipe.timm_name, {**timm_arguments(recipe), "drop_path_rate": recipe.drop_path})
    finally:
        torch.set_rng_state(state)


def _create(name: str, arguments: dict[str, Any]) -> nn.Module:
    try:
        import timm
    except ImportError as error:
        raise MissingExtraError.needed("timm", "train", "building the recipe's model") from error
    try:
        model: nn.Module = timm.create_model(name, pretrained=False, **arguments)
    except (RuntimeError, TypeError, AssertionError) as error:
        raise OptionError(
            f"timm cannot build {name!r} with {arguments} ({error}): expected a vision transformer's name and sizes"
        ) from error
    return model


def save_model(model: nn.Module, folder: str | Path, recipe: Recipe, about: dict[str, Any], half: bool = True) -> Path:
    """Write a plain (baked) model: float16 weights and what is needed to build it again."""
    from safetensors.torch import save

    folder = Path(folder)
    kind = torch.float16 if half else torch.float32
    weights = {name: t.detach().to("cpu", kind).contiguous() for name, t in model.state_dict().items()}
    if not all(t.isfinite().all() for t in weights.values()):  # beyond float16: rare, and worth the space
        weights = {name: t.detach().to("cpu", torch.float32).contiguous() for name, t in model.state_dict().items()}
    config = {
        "schema": SCHEMA,
        "library": "timm",
        "name": recipe.timm_name,
        "arguments": timm_arguments(recipe),
        "mean": list(recipe.mean),
        "std": list(recipe.std),
        **about,
        "recipe": recipe.as_dict(),
    }
    if fix := Variant.parse(about.get("variant", "plain")).fix:
        config["fix"] = fix  # plain timm cannot run it: whoever builds the model must know
    write_atomically(folder / WEIGHTS, save(weights, metadata={"format": "pt"}))
    write_atomically(folder / CONFIG, json.dumps(config, indent=1, ensure_ascii=False) + "\n")
    return folder


def load_trained(folder: str | Path) -> tuple[nn.Module, dict[str, Any]]:
    """A model that `train` wrote, in float32 and evaluation mode, with its configuration."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    folder = Path(folder)
    config = read_json(folder / CONFIG, SCHEMA)
    if missing := [key for key in ("name", "arguments", "recipe") if not config.get(key)]:
        raise CheckpointError(f"{folder / CONFIG} is not complete: it has no {', '.join(missing)}; train again")
    model = _create(config["name"], config["arguments"])
    variant = Variant.parse(config.get("variant", "plain"))
    if variant.fix is not None:  # its learned weights are part of the model
        apply_fix(model, variant.fix, layers=variant.layers)
    try:
        weights = load_file(folder / WEIGHTS)
        model.load_state_dict({name: t.float() for name, t in weights.items()})
    except (SafetensorError, OSError, RuntimeError) as error:
        raise CheckpointError(f"{folder / WEIGHTS} is truncated or does not fit {CONFIG}: {error}") from error
    return model.eval(), config
