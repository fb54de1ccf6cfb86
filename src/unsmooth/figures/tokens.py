"""A static figure of one example's tokens at some layers: similarity matrices and patch maps."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unsmooth.figures.drawing import Drawing
from unsmooth.figures.heads import DIVERGING, SEQUENTIAL, colour_at


def tokens_figure(model: dict[str, Any], most: int = 5) -> Drawing:
    """At most five places from the input to the last layer, evenly spaced."""
    view = model["tokens"]
    count = len(view["points"])
    chosen = sorted({round(i * (count - 1) / max(1, min(most, count) - 1)) for i in range(min(most, count))})
    rows = 2 if view["grid"] else 1
    drawing = Drawing(20 + 150 * len(chosen), 50 + 150 * rows)
    drawing.text(10, 18, f"{model['name']}: the tokens of one example", size=12, weight="bold", colour="#1c1d20")
    matrices = _matrices(view)
    distance = np.array(view["distance"], dtype=float)
    farthest = float(np.nanquantile(distance, 0.98)) or 1.0
    for column, at in enumerate(chosen):
        left = 10 + 150 * column
        drawing.text(left, 40, view["points"][at], size=10)
        colours = np.array([colour_at(DIVERGING, 1 - byte / 255) for byte in range(256)], dtype=np.uint8)
        drawing.image(left, 46, 140, 140, colours[matrices[at]])
        if view["grid"]:
            tall, wide = view["grid"]
            patches = distance[at][view["prefix"] :][: tall * wide].reshape(tall, wide)
            pixels = [[colour_at(SEQUENTIAL, value / farthest) for value in row] for row in patches]
            drawing.image(left, 196, 140, 140, np.array(pixels, dtype=np.uint8))
    return drawing


def _matrices(view: dict[str, Any]) -> NDArray[np.uint8]:
    """The lower triangles as whole symmetric matrices of bytes."""
    size = view["size"]
    triangles = np.frombuffer(base64.b64decode(view["cosine"]), dtype=np.uint8).reshape(len(view["points"]), -1)
    rows, columns = np.tril_indices(size)
    found = np.zeros((len(triangles), size, size), dtype=np.uint8)
    found[:, rows, columns] = triangles
    found[:, columns, rows] = triangles
    return found
