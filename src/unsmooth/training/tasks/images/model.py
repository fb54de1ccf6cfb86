"""Models of a recipe: built by timm, saved as a folder that every verb reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from unsmooth.control import Variant
from unsmooth.errors import MissingExtraError, OptionError
from unsmooth.sources.trained import save_trained
from unsmooth.training.tasks.images.recipe import ImageRecipe


def build_model(recipe: ImageRecipe, seed: int) -> nn.Module:
    """A randomly initialised timm VisionTransformer; the same seed gives the same weights."""
    try:
        import timm
    except ImportError as error:
        raise MissingExtraError.needed("timm", "train", "building the recipe's model") from error
    name, arguments = recipe.timm_name, {**recipe.timm_arguments, "drop_path_rate": recipe.drop_path}
    state = torch.get_rng_state()
    torch.manual_seed(seed)
    try:
        model: nn.Module = timm.create_model(name, pretrained=False, **arguments)
    except (RuntimeError, TypeError, AssertionError) as error:
        raise OptionError(
            f"timm cannot build {name!r} with {arguments} ({error}): expected a vision transformer's name and sizes"
        ) from error
    finally:
        torch.set_rng_state(state)
    return model


def save_model(
    model: nn.Module, folder: str | Path, recipe: ImageRecipe, about: dict[str, Any], half: bool = True
) -> str:
    """Write a plain (baked) model, what is needed to build it again and `about`; returns the hash of its weights."""
    config = {
        "name": recipe.timm_name,
        "arguments": recipe.timm_arguments,
        "mean": list(recipe.mean),
        "std": list(recipe.std),
        **({"crop": recipe.test_crop} if recipe.stream else {}),
        **about,
        "recipe": recipe.as_dict(),
    }
    if fix := Variant.parse(about.get("variant", "plain")).fix:
        config["fix"] = fix  # plain timm cannot run it: whoever builds the model must know
    return save_trained(model, folder, config, half)
