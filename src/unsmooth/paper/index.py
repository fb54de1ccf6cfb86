"""All items, found by looking at the modules of this package."""

from __future__ import annotations

import difflib
import pkgutil
import re
from functools import cache
from importlib import import_module
from typing import get_args

import unsmooth.paper
from unsmooth.errors import OptionError
from unsmooth.paper.item import Item, Source


@cache
def items() -> tuple[Item, ...]:
    """Every figure and table: the paper's, the poster's, ours; in the order of their numbers."""
    modules = (import_module(f"unsmooth.paper.{m.name}") for m in pkgutil.iter_modules(unsmooth.paper.__path__))
    found = [module.ITEM for module in modules if isinstance(getattr(module, "ITEM", None), Item)]
    return tuple(sorted(found, key=lambda item: (get_args(Source).index(item.source), _natural(item.name))))


def find_item(name: str) -> Item:
    """The item of this name; an unknown one gets the list of all, and the nearest."""
    known = {item.name: item for item in items()}
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=1)
    raise OptionError(
        f"unknown figure or table {name!r}: expected one of {', '.join(known)}"
        + (f"; did you mean {near[0]}?" if near else "")
    )


def _natural(name: str) -> list[str | int]:
    """Numbers inside names sort as numbers."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]
