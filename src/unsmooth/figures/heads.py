"""Static figures over heads: heat maps, and the shares of type (1) and type (2)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from unsmooth.figures.drawing import SHARP, SMOOTH, ZERO, Drawing
from unsmooth.figures.text import percent_text

Indexed = list[tuple[int, dict[str, Any]]]
RGB = tuple[int, int, int]
# The page's colours: blue (smoothing) to orange (sharpening), and cividis.
DIVERGING: tuple[RGB, ...] = (
    (18, 72, 140), (74, 134, 196), (160, 197, 228), (238, 236, 230), (248, 194, 139), (221, 124, 48), (150, 64, 5),
)  # fmt: skip
SEQUENTIAL: tuple[RGB, ...] = (
    (0, 34, 78), (35, 62, 108), (85, 91, 108), (123, 121, 120), (165, 152, 113), (212, 186, 88), (254, 232, 56),
)  # fmt: skip
TYPES = (
    ("sharpening", "type (2), sharpening", SHARP),
    ("mixed", "both tie", ZERO),
    ("smoothing", "type (1), smoothing", SMOOTH),
)


def colour_at(stops: Sequence[RGB], share: float) -> RGB:
    """The colour at a place between the first stop (0) and the last (1).

    >>> colour_at(((0, 0, 0), (100, 100, 100)), 0.5)
    (50, 50, 50)
    """
    at = min(max(share, 0.0), 1.0) * (len(stops) - 1)
    low = min(int(at), len(stops) - 2)
    red, green, blue = (round(a + (b - a) * (at - low)) for a, b in zip(stops[low], stops[low + 1], strict=True))
    return red, green, blue


def heads_figure(models: Indexed, what: str) -> Drawing:
    """Layers × heads of the exponent (diverging colours) or of the relative attention entropy (cividis)."""
    tables = [np.array(model["explain"]["heads"].get(what, [[math.nan]]), dtype=float) for _, model in models]
    finite = np.concatenate([np.abs(t[np.isfinite(t)]) for t in tables])
    most = float(np.quantile(finite, 0.98)) if finite.size else 1.0
    cell, tall = 26, 18
    widths = [max(190, 60 + cell * table.shape[1]) for table in tables]
    drawing = Drawing(20 + sum(widths), 80 + tall * max(len(table) for table in tables))
    left = 20.0
    for (_, model), table, width in zip(models, tables, widths, strict=True):
        drawing.text(left, 20, model["name"], size=12, weight="bold", colour="#1c1d20")
        for layer, row in enumerate(table):
            drawing.text(left + 20, 44 + tall * layer, layer, anchor="end", size=10)
            for head, value in enumerate(row):
                if math.isfinite(value):
                    share = 0.5 + value / (2 * most or 1) if what == "exponent" else value
                    rgb = colour_at(DIVERGING if what == "exponent" else SEQUENTIAL, share)
                    drawing.rect(left + 26 + cell * head, 32 + tall * layer, cell - 1, tall - 1, f"rgb{rgb}")
        drawing.text(left + 26, 50 + tall * len(table), "head →, layer ↓", size=10)
        left += width
    said = (
        f"exponent γ: blue smooths, orange sharpens, ±{most:.2g} nats" if what == "exponent"
        else "attention entropy over log n: dark 0 (one token), bright 1 (all alike)"
    )  # fmt: skip
    drawing.text(20, drawing.height - 8, said, size=10)
    return drawing


def shares_figure(models: Indexed) -> Drawing:
    """Stacked bars of the types, as the paper counts them."""
    drawing = Drawing(700, 40 + 44 * len(models))
    for row, (_, model) in enumerate(models):
        types = model["explain"]["types"]["paper"]
        low, high = types["interval"]
        interval = "" if low is None else f", 95 % interval {percent_text(low)} to {percent_text(high)}"
        drawing.text(20, 20 + 44 * row, model["name"], size=12, weight="bold", colour="#1c1d20")
        drawing.text(
            680, 20 + 44 * row, f"type (2): {percent_text(types['share']['sharpening'])}{interval}", anchor="end"
        )
        left = 20.0
        for kind, _, colour in TYPES:
            width = 660 * (types["share"][kind] or 0.0)
            drawing.rect(left, 26 + 44 * row, width, 18, colour)
            left += width
    for i, (_, said, colour) in enumerate(TYPES):
        drawing.rect(20 + 170 * i, drawing.height - 20, 10, 10, colour)
        drawing.text(36 + 170 * i, drawing.height - 11, said)
    return drawing
