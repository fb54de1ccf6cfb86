"""What a drawing holds, flat."""

from __future__ import annotations

import numpy as np

from unsmooth.figures.drawing import Drawing
from unsmooth.figures.marks import Group, Mark, Stroke, Words


def flat(marks: list[Mark], x: float = 0.0, y: float = 0.0) -> list[tuple[Stroke | Words, float, float]]:
    """Every mark with what its groups moved it by."""
    found = []
    for mark in marks:
        if isinstance(mark, Group):
            found += flat(mark.marks, x + mark.x, y + mark.y)
        elif isinstance(mark, Stroke | Words):
            found.append((mark, x, y))
    return found


def words(drawing: Drawing) -> list[str]:
    return [mark.said for mark, _, _ in flat(drawing.marks) if isinstance(mark, Words)]


def dots(drawing: Drawing, colour: str) -> int:
    return sum(
        len(m.lines) for m, _, _ in flat(drawing.marks) if isinstance(m, Stroke) and m.dots and m.stroke == colour
    )


def luminance(colour: str) -> float:
    """Relative, as contrast is computed (WCAG 2)."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return float(np.dot((0.2126, 0.7152, 0.0722), linear))
