"""Models of a recipe: built by timm, saved as a folder that every verb reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

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
    if recipe.positions == "waves":
        _fix_positions(model, recipe)
    return model


@torch.no_grad()
def _fix_positions(model: Any, recipe: ImageRecipe) -> None:
    """Positions that are not learned; a class token has none."""
    model.pos_embed.zero_()
    model.pos_embed[0, model.num_prefix_tokens :] = waves(recipe.image_size // recipe.patch_size, recipe.width)
    model.pos_embed.requires_grad_(False)


def waves(side: int, width: int) -> Float[Tensor, "patch width"]:
    """Sine and cosine of both coordinates with wavelengths from 2π to 20,000π patches (Chen et al., 2021, MoCo v3).

    >>> [round(number, 2) for number in waves(2, 4)[1].tolist()]  # at x = 1, y = 0
    [0.84, 0.54, 0.0, 1.0]
    """
    rates = 10_000.0 ** -torch.linspace(0, 1, width // 4, dtype=torch.float64)
    y, x = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    angles = [where.flatten()[:, None] * rates for where in (x, y)]
    return torch.cat([wave(angle) for angle in angles for wave in (torch.sin, torch.cos)], -1)


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
