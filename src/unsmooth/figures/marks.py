"""The marks of a drawing: paths (lines, bars, areas, dots), texts and pixel images; a group moves or clips others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

FONT_SIZE = 11.0
Point = tuple[float, float]
Anchor = Literal["start", "middle", "end"]


@dataclass(frozen=True)
class Stroke:
    """Lines through points. `closed` outlines are filled with `fill`; a line of one point with round ends is a dot."""

    lines: tuple[tuple[Point, ...], ...]
    fill: str = "none"
    stroke: str = "none"
    width: float = 1.0
    dash: str = ""
    opacity: float = 1.0
    closed: bool = False
    dots: bool = False


@dataclass(frozen=True)
class Words:
    """One line of text."""

    x: float
    y: float
    said: str
    size: float = FONT_SIZE
    anchor: Anchor = "start"
    colour: str = "soft"
    bold: bool = False
    turn: float = 0.0


@dataclass(frozen=True)
class Pixels:
    """An array (rows, columns, 3) stretched over a rectangle."""

    x: float
    y: float
    width: float
    height: float
    pixels: NDArray[np.uint8]


@dataclass
class Group:
    """Marks that are moved by (x, y), cut off at `clip` (left, top, width, height), or belong to one thing.

    `data` become data attributes, and `title` is said when the marks are pointed at.
    """

    marks: list[Mark] = field(default_factory=list)
    x: float = 0.0
    y: float = 0.0
    clip: tuple[float, float, float, float] | None = None
    data: Mapping[str, object] = field(default_factory=dict)
    title: str = ""


Mark = Stroke | Words | Pixels | Group
