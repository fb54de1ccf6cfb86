"""The numbers that the paper, the poster and a benchmark's authors print, from one data file."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from unsmooth.errors import OptionError


@cache
def _all() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((files("unsmooth.paper") / "published.json").read_text(encoding="utf-8"))
    return found


def published(table: str) -> dict[str, Any]:
    """One published table.

    >>> published("poster-table2")["plain"][0]
    [66.78, 0.1]
    """
    tables = [name for name in _all() if name != "sources"]
    if table not in tables:
        raise OptionError.unknown("published table", table, tables)
    found: dict[str, Any] = _all()[table]
    return found


def cifar100_column(table: str, variant: str) -> dict[str, float]:
    """A CIFAR-100 column of Tables 1–3, by kind of layer.

    >>> cifar100_column("table1", "sharpening")
    {'LayerNorm': 0.011, 'Attention': 0.418, 'MLP': 0.418}
    """
    return column(table, "CIFAR100", "ViT-Ti", variant)


def column(table: str, data: str, model: str, variant: str = "plain") -> dict[str, float]:
    """A column of Tables 1–3, by kind of layer.

    >>> column("table3", "The Pile", "Cram. Bert", "smoothing")
    {'LayerNorm': -0.025, 'Attention': 0.035, 'MLP': 0.016}
    """
    name = f"{data} {model}" + ("" if variant == "plain" else f" ({variant})")
    number = published(table)["columns"].index(name)
    return {kind: published(table)[kind][number] for kind in ("LayerNorm", "Attention", "MLP")}
