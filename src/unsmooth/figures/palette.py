"""The colours of every figure, page and document: blue smooths, orange sharpens, everywhere.

A colour has a name and two values, for light and for dark paper. Drawings hold names; a file gets the values and the
page gets CSS variables, so that dark mode and print change nothing but variables. Pairs that must be told apart differ
for all common kinds of colour blindness, and lines differ in their dashes too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

RGB = tuple[int, int, int]

COLOURS: dict[str, tuple[str, str]] = {
    "paper": ("#fbfaf7", "#15171b"),
    "card": ("#ffffff", "#1b1e23"),
    "faint": ("#f1eee7", "#22262c"),
    "line": ("#e3dfd6", "#30343b"),
    "ink": ("#1c1d20", "#e9e6df"),
    "soft": ("#5c6066", "#a3a6ab"),
    "link": ("#1f5f99", "#8cbcf0"),
    "smooth": ("#1f63a8", "#6fb0f2"),
    "sharp": ("#bb4e0c", "#f49a55"),
    "zero": ("#b9b4a9", "#6a6e75"),
    "model-0": ("#1c1d20", "#e9e6df"),
    "model-1": ("#c2267f", "#f477b9"),
    "model-2": ("#0d8f7c", "#3fd0b8"),
    "model-3": ("#9a6a00", "#e0b14a"),
    "model-4": ("#5a55d6", "#a6a2ff"),
    "model-5": ("#6b7a2a", "#b9cb6a"),
    "series-0": ("#1c1d20", "#e9e6df"),
    "series-1": ("#7a4fb5", "#b69af0"),
    "series-2": ("#11866f", "#45c2a6"),
    "series-3": ("#9a958a", "#8b8f97"),
}
MODELS = 6
DASHES = ("", "7 3", "2 2.5", "9 3 2 3", "12 4", "4 2 1 2")
# How far from grey to the full colour: smoothing on the left, sharpening on the right.
DIVERGING: tuple[RGB, ...] = (
    (18, 72, 140), (74, 134, 196), (160, 197, 228), (238, 236, 230), (248, 194, 139), (221, 124, 48), (150, 64, 5),
)  # fmt: skip
# Cividis, made to look the same with and without colour blindness.
SEQUENTIAL: tuple[RGB, ...] = (
    (0, 34, 78), (35, 62, 108), (85, 91, 108), (123, 121, 120), (165, 152, 113), (212, 186, 88), (254, 232, 56),
)  # fmt: skip


def direction(change: float, smoother: int) -> str:
    """The colour of a change: `smoother` is the sign of the metric's change when features become smoother.

    >>> direction(-0.2, smoother=-1), direction(0.1, smoother=-1), direction(0.0, smoother=1)
    ('smooth', 'sharp', 'zero')
    """
    return "smooth" if change * smoother > 0 else "sharp" if change * smoother < 0 else "zero"


def model_colour(index: int) -> str:
    """The colour of the n-th model."""
    return f"model-{index % MODELS}"


def model_dash(index: int) -> str:
    """The dashes of the n-th model's line: models that share a colour have other dashes.

    >>> model_colour(0) == model_colour(6), model_dash(0) == model_dash(6)
    (True, False)
    """
    return DASHES[(index + index // MODELS) % len(DASHES)]


def value(colour: str, dark: bool = False) -> str:
    """What a name stands for; anything else is a colour already.

    >>> value("smooth"), value("rgb(1,2,3)")
    ('#1f63a8', 'rgb(1,2,3)')
    """
    return COLOURS[colour][dark] if colour in COLOURS else colour


def variable(colour: str) -> str:
    """The same on the page, where a style sheet decides between light and dark.

    >>> variable("smooth"), variable("none")
    ('var(--smooth)', 'none')
    """
    return f"var(--{colour})" if colour in COLOURS else colour


def style_sheet() -> str:
    """The variables of the page, the levels of the sequential colours as classes, and strips of all colours."""
    names = "".join(f"--{name}:light-dark({light},{dark});" for name, (light, dark) in COLOURS.items())
    levels = "".join(
        f".q{level}{{background:rgb{rgb};color:{readable(rgb)}}}"
        for level in range(LEVELS)
        for rgb in [colour_at(SEQUENTIAL, level / (LEVELS - 1))]
    )
    ramps = "".join(
        f".ramp-{name}{{background:linear-gradient(to right,{','.join(f'rgb{rgb}' for rgb in stops)})}}"
        for name, stops in (("diverging", DIVERGING), ("alike", DIVERGING[::-1]), ("sequential", SEQUENTIAL))
    )
    return f":root{{{names}}}\n{levels}\n{ramps}\n".replace(", ", ",")


LEVELS = 16  # of the sequential colours, where text stands on them


def colour_at(stops: Sequence[RGB], share: float) -> RGB:
    """The colour at a place between the first stop (0) and the last (1).

    >>> colour_at(((0, 0, 0), (100, 100, 100)), 0.5)
    (50, 50, 50)
    """
    red, green, blue = ramp(stops, np.array(share)).tolist()
    return red, green, blue


def ramp(stops: Sequence[RGB], shares: NDArray[np.floating]) -> NDArray[np.uint8]:
    """`colour_at` for a whole array: a last axis of red, green and blue."""
    at = np.clip(np.nan_to_num(shares), 0.0, 1.0) * (len(stops) - 1)
    channels = [np.interp(at, range(len(stops)), [stop[i] for stop in stops]) for i in range(3)]
    return np.stack(channels, -1).round().astype(np.uint8)


def readable(rgb: RGB) -> str:
    """Black or white, whichever has more contrast with that colour (WCAG's: at least 4.5 to 1 for one of them).

    >>> readable((254, 232, 56)), readable((0, 34, 78)), readable((131, 127, 119))
    ('#000', '#fff', '#000')
    """
    shares = np.array(rgb) / 255
    linear = np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)
    light = float(linear @ (0.2126, 0.7152, 0.0722)) + 0.05
    return "#000" if light / 0.05 > 1.05 / light else "#fff"
