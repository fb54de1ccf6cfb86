"""What the engine trains: one folder per task, and one registry of their recipes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from unsmooth.errors import OptionError
from unsmooth.training.engine.recipe import Recipe
from unsmooth.training.tasks.images.recipe import RECIPES as IMAGES
from unsmooth.training.tasks.text.recipe import RECIPES as TEXTS

RECIPES: Mapping[str, Recipe] = MappingProxyType({**IMAGES, **TEXTS})


def find_recipe(name: str) -> Recipe:
    """The recipe of this name.

    >>> find_recipe("cifar100").override(["lr=3e-4"]).changes()
    ['lr=0.0003']
    """
    if name not in RECIPES:
        raise OptionError.unknown("recipe", name, RECIPES)
    return RECIPES[name]
