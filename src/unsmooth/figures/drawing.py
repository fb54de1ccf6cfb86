"""A drawing is a list of marks. The same marks become SVG for a page or a file, and PNG or PDF for a paper.

Colours are names of the palette. Lengths are CSS pixels, y grows downwards.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from unsmooth.errors import OptionError
from unsmooth.figures.marks import FONT_SIZE, Anchor, Group, Mark, Pixels, Point, Stroke, Words
from unsmooth.figures.palette import value, variable
from unsmooth.figures.svg import attributes, element
from unsmooth.sources.files import write_atomically

FORMATS = ("svg", "png", "pdf")
_FONT = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"


@dataclass(repr=False)
class Drawing:
    """A figure under construction. `data` describes its first panel to whoever adds hovering to it."""

    width: float
    height: float
    label: str = ""
    marks: list[Mark] = field(default_factory=list)
    data: dict[str, object] = field(default_factory=dict)

    def text(
        self, x: float, y: float, said: object, *, size: float = FONT_SIZE, anchor: Anchor = "start",
        colour: str = "soft", bold: bool = False, turn: float = 0.0,
    ) -> None:  # fmt: skip
        """Words; their baseline is at y."""
        self.marks.append(Words(x, y, str(said), size, anchor, colour, bold, turn))

    def title(self, x: float, y: float, said: object) -> None:
        """Words at the head of a panel."""
        self.text(x, y, said, size=12, colour="ink", bold=True)

    def line(
        self, points: Iterable[Point], colour: str, width: float = 1, dash: str = "", opacity: float = 1.0
    ) -> None:
        """A line through the points that exist; gaps stay gaps."""
        parts: list[list[Point]] = [[]]
        for x, y in points:
            if math.isfinite(x) and math.isfinite(y):
                parts[-1].append((x, y))
            elif parts[-1]:
                parts.append([])
        self.lines([part for part in parts if len(part) > 1], colour, width, dash, opacity)

    def lines(
        self, lines: Iterable[Sequence[Point]], colour: str, width: float = 1, dash: str = "", opacity: float = 1.0
    ) -> None:
        """Several lines of one kind in one mark."""
        if kept := tuple(tuple(line) for line in lines):
            self.marks.append(Stroke(kept, stroke=colour, width=width, dash=dash, opacity=opacity))

    def areas(
        self, outlines: Iterable[Sequence[Point]], fill: str = "none", opacity: float = 1.0, stroke: str = "none",
        width: float = 1.0,
    ) -> None:  # fmt: skip
        """Filled outlines of one kind."""
        kept = tuple(
            known
            for line in outlines
            if (known := tuple(p for p in line if math.isfinite(p[0]) and math.isfinite(p[1])))
        )
        if kept:
            self.marks.append(Stroke(kept, fill, stroke, width, opacity=opacity, closed=True))

    def rect(self, x: float, y: float, width: float, height: float, fill: str, opacity: float = 1.0) -> None:
        """A filled rectangle."""
        self.areas([box(x, y, width, height)], fill, opacity)

    def dots(self, points: Iterable[Point], colour: str, size: float, opacity: float = 1.0) -> None:
        """Many dots of one kind."""
        if kept := tuple((p,) for p in points if math.isfinite(p[0]) and math.isfinite(p[1])):
            self.marks.append(Stroke(kept, stroke=colour, width=size, opacity=opacity, dots=True))

    def image(self, x: float, y: float, width: float, height: float, pixels: NDArray[np.uint8]) -> None:
        """Sharp-edged pixels."""
        self.marks.append(Pixels(x, y, width, height, pixels))

    def group(self, clip: tuple[float, float, float, float] | None = None, title: str = "", **data: object) -> Drawing:
        """A drawing whose marks go into a group of this one; `data` names it for the page, as in `model=0`."""
        inner = Group(clip=clip, data=data, title=title)
        self.marks.append(inner)
        return Drawing(self.width, self.height, marks=inner.marks)

    def place(self, other: Drawing, x: float, y: float) -> None:
        """Put a whole drawing at (x, y) of this one."""
        self.marks.append(Group(other.marks, x, y))

    def svg(self, dark: bool = False) -> str:
        """The whole SVG file."""
        size = f'width="{self.width:g}" height="{self.height:g}" viewBox="0 0 {self.width:g} {self.height:g}"'
        paint = (lambda c: value(c, True)) if dark else value
        paper = value("paper", True) if dark else "#fff"
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="{_FONT}" font-size="{FONT_SIZE:g}" '
            f'fill="{paint("soft")}"><title>{escape(self.label)}</title><rect width="100%" height="100%" '
            f'fill="{paper}"/>{"".join(element(mark, paint) for mark in self.marks)}</svg>\n'
        )

    def html(self, style: str = "", /, **data: object) -> str:
        """The drawing inside a page: colours are the page's variables, and `data` become data attributes.

        A drawing that names its `chart` can be walked through with the keyboard; one without a label is decoration.
        """
        given = attributes({**self.data, **data})
        marks = "".join(element(mark, variable) for mark in self.marks)
        said = f'role="img" aria-label="{escape(self.label)}"' if self.label else 'aria-hidden="true"'
        focus = ' tabindex="0"' if "chart" in data else ""
        return (
            f'<svg class="chart{" " + style if style else ""}" viewBox="0 0 {self.width:g} {self.height:g}" '
            f'width="{self.width:g}" height="{self.height:g}" {said}{focus}{given}>{marks}</svg>'
        )

    def save(self, path: str | Path) -> Path:
        """Write the drawing as the name's ending says: `.svg`, `.png` (twice the size in pixels) or `.pdf`."""
        return write_atomically(path, self.render(Path(path).suffix.removeprefix(".").lower()))

    def render(self, kind: str) -> bytes:
        """The bytes of a file of this kind; PNG and PDF need matplotlib, `unsmooth[report]`."""
        if kind not in FORMATS:
            raise OptionError.unknown("figure format", kind, FORMATS)
        if kind == "svg":
            return self.svg().encode()
        from unsmooth.figures.printing import printed

        return printed(self, kind)

    def __repr__(self) -> str:
        return f"Drawing({self.label!r}, {self.width:g} × {self.height:g})"

    def _repr_svg_(self) -> str:
        return self.svg()


def box(x: float, y: float, width: float, height: float) -> tuple[Point, ...]:
    """The corners of a rectangle."""
    width, height = max(width, 0.0), max(height, 0.0)
    return ((x, y), (x + width, y), (x + width, y + height), (x, y + height))


def grid(panels: Sequence[Drawing], across: int, gap: float = 16.0, top: float = 0.0, bottom: float = 0.0) -> Drawing:
    """Panels in rows, with room above and below; the drawing can then be drawn on.

    >>> grid([Drawing(100, 50), Drawing(100, 50), Drawing(100, 50)], across=2).height
    116.0
    """
    rows = [panels[i : i + across] for i in range(0, len(panels), across)]
    widths = [max(row[i].width for row in rows if i < len(row)) for i in range(min(across, len(panels)))]
    found = Drawing(sum(widths) + gap * (len(widths) - 1), 0.0)
    y = top
    for row in rows:
        for i, panel in enumerate(row):
            found.place(panel, sum(widths[:i]) + gap * i, y)
        y += max(panel.height for panel in row) + gap
    found.height = y - gap + bottom
    return found
