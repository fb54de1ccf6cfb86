"""A drawing is a list of marks. The same marks become SVG for a page or a file, and PNG or PDF for a paper.

Three kinds are enough: paths (lines, bars, areas, dots), texts and pixel images; a group moves or clips others.
Colours are names of the palette. Lengths are CSS pixels, y grows downwards.
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from unsmooth.errors import OptionError
from unsmooth.figures.palette import value, variable

FORMATS = ("svg", "png", "pdf")
FONT_SIZE = 11.0
_MANY = 100  # dots of one kind, from which on they are a cloud
_FONT = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
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


@dataclass
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
        width: float = 1.0, dash: str = "",
    ) -> None:  # fmt: skip
        """Filled outlines of one kind."""
        kept = tuple(
            known
            for line in outlines
            if (known := tuple(p for p in line if math.isfinite(p[0]) and math.isfinite(p[1])))
        )
        if kept:
            self.marks.append(Stroke(kept, fill, stroke, width, dash, opacity, closed=True))

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
            f'fill="{paper}"/>{"".join(_svg(mark, paint) for mark in self.marks)}</svg>\n'
        )

    def html(self, style: str = "", /, **data: object) -> str:
        """The drawing inside a page: colours are the page's variables, and `data` become data attributes.

        A drawing that names its `chart` can be walked through with the keyboard; one without a label is decoration.
        """
        given = _attributes({**self.data, **data})
        marks = "".join(_svg(mark, variable) for mark in self.marks)
        said = f'role="img" aria-label="{escape(self.label)}"' if self.label else 'aria-hidden="true"'
        focus = ' tabindex="0"' if "chart" in data else ""
        return (
            f'<svg class="chart{" " + style if style else ""}" viewBox="0 0 {self.width:g} {self.height:g}" '
            f'width="{self.width:g}" height="{self.height:g}" {said}{focus}{given}>{marks}</svg>'
        )

    def save(self, path: str | Path) -> Path:
        """Write the drawing as the name's ending says: `.svg`, `.png` (twice the size in pixels) or `.pdf`."""
        from unsmooth.sources.files import write_atomically

        return write_atomically(path, self.render(Path(path).suffix.removeprefix(".").lower()))

    def render(self, kind: str) -> bytes:
        """The bytes of a file of this kind; PNG and PDF need matplotlib, `unsmooth[report]`."""
        if kind not in FORMATS:
            raise OptionError.unknown("figure format", kind, FORMATS)
        if kind == "svg":
            return self.svg().encode()
        from unsmooth.figures.printing import printed

        return printed(self, kind)

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


def _svg(mark: Mark, paint: object) -> str:
    if isinstance(mark, Group):
        inside = "".join(_svg(each, paint) for each in mark.marks)
        if not inside:
            return ""
        if mark.clip is not None:  # an inner SVG cuts off what leaves it, and needs no name that must be unique
            left, top, width, height = (_number(v) for v in mark.clip)
            view = f'x="{left}" y="{top}" width="{width}" height="{height}" viewBox="{left} {top} {width} {height}"'
            inside = f"<svg {view}>{inside}</svg>"
        moved = f' transform="translate({_number(mark.x)} {_number(mark.y)})"' if mark.x or mark.y else ""
        given, title = _attributes(mark.data), f"<title>{escape(mark.title)}</title>" if mark.title else ""
        return f"<g{moved}{given}>{title}{inside}</g>" if moved or given or title else inside
    colour = paint  # a function from a name to what stands in the file
    assert callable(colour)
    if isinstance(mark, Stroke):
        return _path(mark, colour(mark.fill), colour(mark.stroke))
    if isinstance(mark, Words):
        at = f"{_number(mark.x)} {_number(mark.y)}"
        where = (
            f'transform="translate({at}) rotate({mark.turn:g})"' if mark.turn
            else f'x="{_number(mark.x)}" y="{_number(mark.y)}"'
        )  # fmt: skip
        style = f' font-size="{mark.size:g}"' if mark.size != FONT_SIZE else ""
        style += f' text-anchor="{mark.anchor}"' if mark.anchor != "start" else ""
        style += f' fill="{colour(mark.colour)}"' if mark.colour != "soft" else ""
        style += ' font-weight="600"' if mark.bold else ""
        return f"<text {where}{style}>{escape(mark.said)}</text>"
    address = "data:image/png;base64," + base64.b64encode(png(mark.pixels)).decode()
    size = " ".join(f'{n}="{_number(v)}"' for n, v in (("x", mark.x), ("y", mark.y), ("width", mark.width)))
    return (
        f'<image {size} height="{_number(mark.height)}" preserveAspectRatio="none" '
        f'style="image-rendering:pixelated" href="{address}"/>'
    )


def _path(mark: Stroke, fill: str, stroke: str) -> str:
    """One element for all lines, in tenths of a pixel, each point relative to the last: pages hold many of them."""
    parts: list[str] = [_many_dots(mark)] if mark.dots and len(mark.lines) > _MANY else []
    at = (0, 0)
    for line in () if parts else mark.lines:
        places = [(round(x * 10), round(y * 10)) for x, y in line]
        parts.append("m" + _pair(places[0][0] - at[0], places[0][1] - at[1]))
        for before, after in pairwise(places):
            dx, dy = after[0] - before[0], after[1] - before[1]
            parts.append(f"v{_tenths(dy)}" if dx == 0 else f"h{_tenths(dx)}" if dy == 0 else "l" + _pair(dx, dy))
        parts.append("h0" if mark.dots else "z" if mark.closed else "")
        at = places[0] if mark.closed or mark.dots else places[-1]
    style = f' fill="{fill}"'
    if stroke != "none":
        style += f' stroke="{stroke}"' + (f' stroke-width="{mark.width:g}"' if mark.width != 1 else "")
    style += f' stroke-dasharray="{mark.dash}"' if mark.dash else ""
    style += ' stroke-linecap="round"' if mark.dots else ""
    style += f' opacity="{mark.opacity:g}"' if mark.opacity < 1 else ""
    return f'<path d="{"".join(parts)}"{style}/>'


def _many_dots(mark: Stroke) -> str:
    """A cloud in whole pixels, from left to right: short steps, and what would lie on a dot is left out."""
    places = np.unique(np.array([line[0] for line in mark.lines]).round().astype(int), axis=0)
    steps = np.diff(places, axis=0, prepend=0)
    return "".join(f"m{dx}{'' if dy < 0 else ' '}{dy}h0" for dx, dy in steps.tolist())


def _pair(dx: int, dy: int) -> str:
    second = _tenths(dy)
    return _tenths(dx) + ("" if second.startswith("-") else " ") + second


def _tenths(value: int) -> str:
    whole, part = divmod(abs(value), 10)
    text = f"{whole}.{part}" if part and whole else f".{part}" if part else str(whole)
    return "-" + text if value < 0 else text


def _number(value: float) -> str:
    return _tenths(round(value * 10))


def _attributes(data: Mapping[str, object]) -> str:
    return "".join(f' data-{name}="{escape(str(given))}"' for name, given in data.items())


def png(pixels: NDArray[np.uint8], clear: NDArray[np.bool_] | None = None) -> bytes:
    """An RGB array as a PNG file, with a table of its colours where 256 are enough.

    What is `clear` can be seen through; then there must be fewer than 256 colours.
    """
    rows, columns, _ = pixels.shape
    table, places = np.unique(pixels.reshape(-1, 3), axis=0, return_inverse=True)
    places = places.reshape(rows, columns)
    if clear is not None:
        table, places = np.concatenate([np.zeros((1, 3), np.uint8), table]), np.where(clear, 0, places + 1)
    few = len(table) <= 256
    flat = places.astype(np.uint8) if few else pixels.reshape(rows, -1)
    raw = b"".join(b"\0" + row.tobytes() for row in np.ascontiguousarray(flat))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", columns, rows, 8, 3 if few else 2, 0, 0, 0))
    colours = chunk(b"PLTE", table.tobytes()) if few else b""
    colours += chunk(b"tRNS", b"\0") if clear is not None else b""
    return b"\x89PNG\r\n\x1a\n" + header + colours + chunk(b"IDAT", zlib.compress(raw, 9)) + chunk(b"IEND", b"")
