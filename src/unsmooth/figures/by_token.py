"""One example's tokens on their way through the layers: how similar each pair is, and how far each is from the mean."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from unsmooth.analysis import TokenView
from unsmooth.figures.by_head import colour_bar
from unsmooth.figures.drawing import Drawing
from unsmooth.figures.palette import DIVERGING, LEVELS, SEQUENTIAL, ramp

_FEW = 4  # tokens, of which none is left out of the range of colours
# A cosine is kept in a byte; 32 colours between blue (1, alike) and orange (−1) are more than an eye tells apart.
_COLOURS = ramp(DIVERGING, 1 - (np.arange(256) // 8 * 8 + 4) / 255)


def similarity(view: TokenView, at: int) -> NDArray[np.uint8]:
    """The cosine of every pair of tokens at a place, as pixels."""
    rows, columns = np.tril_indices(view.size)
    found = np.zeros((view.size, view.size), dtype=np.uint8)
    found[rows, columns] = found[columns, rows] = view.cosine[at]
    return np.asarray(_COLOURS[found])


def mean_cosine(view: TokenView, at: int) -> float:
    """Over pairs of different tokens."""
    rows, columns = np.tril_indices(view.size)
    cosines = view.cosine[at][rows != columns]
    return float(cosines.mean() / 127.5 - 1) if cosines.size else math.nan


def ratio(view: TokenView, at: int) -> float:
    """HFC/LFC of the tokens shown: the root of the mean square of their distances."""
    return float(np.sqrt(np.mean(np.square(view.distance[at], dtype=np.float64))))


def distance_scale(views: list[TokenView]) -> float:
    """The distance that gets the last colour, one for all layers and models; the farthest token of each has it too."""
    values = np.concatenate([_near(distances) for view in views for distances in view.distance])
    return (float(np.quantile(values, 0.98)) if values.size else 1.0) or 1.0


def _near(distances: NDArray[np.floating]) -> NDArray[np.float64]:
    """The finite ones in order without the largest: where a token is an outlier, the others have colours too."""
    finite = np.sort(distances[np.isfinite(distances)].astype(np.float64))
    return finite[:-1] if len(finite) > _FEW else finite


def distance_shares(view: TokenView, at: int, most: float | None) -> NDArray[np.float64]:
    """Each token's distance from the mean token between 0 and 1; `most` None uses this layer's own range."""
    values = view.distance[at].astype(np.float64)
    near = _near(values)
    low, high = (0.0, most) if most is not None else (near.min(initial=math.inf), near.max(initial=-math.inf))
    if not high > low:
        low, high = 0.0, 1.0
    return np.clip(np.nan_to_num((values - low) / (high - low), posinf=1.0), 0.0, 1.0)


def patches(view: TokenView, at: int, most: float | None) -> NDArray[np.uint8]:
    """The distances of an image's patches, in their places, as pixels."""
    assert view.grid is not None
    tall, wide = view.grid
    chosen = distance_shares(view, at, most)[view.prefix :][: tall * wide].reshape(tall, wide)
    return ramp(SEQUENTIAL, chosen)


def levels(view: TokenView, at: int, most: float | None) -> str:
    """One hexadecimal digit for each token: its distance, for text that stands on its colour."""
    return "".join(f"{round(share * (LEVELS - 1)):x}" for share in distance_shares(view, at, most))


def tokens(view: TokenView, *, name: str = "") -> Drawing:
    """At most five places from the input to the last layer, evenly spaced: distances above, similarities below."""
    count = min(5, len(view.points))
    last = len(view.points) - 1
    chosen = sorted({round(i * last / max(1, count - 1)) for i in range(count)})
    side, top = 150.0, 58.0
    above = side if view.grid else 22.0
    drawing = Drawing(max(10 + (side + 10) * len(chosen), 560), top + above + 8 + side + 58)
    drawing.label = f"{name or 'the model'}: the tokens of one example"
    drawing.title(10, 16, drawing.label)
    drawing.text(10, 34, "above: distance from the mean token; below: cosine similarity of every pair")
    far = distance_scale([view])
    for column, at in enumerate(chosen):
        left = 10 + (side + 10) * column
        drawing.text(left, top - 6, view.points[at])
        strip = patches(view, at, far) if view.grid else ramp(SEQUENTIAL, distance_shares(view, at, far)[None])
        drawing.image(left, top, side, above, strip)
        drawing.image(left, top + above + 8, side, side, similarity(view, at))
    colour_bar(drawing, 10, drawing.height - 38, False, "near", "far from the mean token")
    colour_bar(drawing, 10, drawing.height - 18, True, "cosine 1, alike", "−1")
    return drawing
