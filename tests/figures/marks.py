"""What a drawing holds, flat."""

from __future__ import annotations

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
