"""A panel: a plot area with axes inside a drawing, which turns values into positions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from unsmooth.figures.drawing import Drawing
from unsmooth.figures.marks import Point
from unsmooth.figures.text import short, tick_text, ticks_text

Domain = tuple[float, float]
_ROUNDING = 4e-6  # of a value, some tens of units of float32's rounding


@dataclass
class Panel:
    """The plot area. A logarithmic axis holds powers: its domain and its values are log10."""

    drawing: Drawing
    left: float
    top: float
    width: float
    height: float
    x_domain: Domain
    y_domain: Domain

    @property
    def right(self) -> float:
        return self.left + self.width

    @property
    def bottom(self) -> float:
        return self.top + self.height

    @property
    def frame(self) -> tuple[float, float, float, float]:
        """Left, top, width and height, to clip with."""
        return self.left, self.top, self.width, self.height

    def x(self, value: float) -> float:
        """The position of a value on the horizontal axis."""
        low, high = self.x_domain
        return self.left + (value - low) / (high - low) * self.width

    def y(self, value: float) -> float:
        """The position of a value on the vertical axis."""
        low, high = self.y_domain
        return self.bottom - (value - low) / (high - low) * self.height

    def at(self, points: Iterable[Point]) -> list[Point]:
        """The positions of points."""
        return [(self.x(x), self.y(y)) for x, y in points]

    def level(self, value: float, dash: str = "") -> None:
        """A line at one height over the whole width."""
        self.drawing.line([(self.left, self.y(value)), (self.right, self.y(value))], "soft", 1, dash)

    def upright(self, value: float, colour: str = "soft") -> None:
        """A line at one place over the whole height."""
        self.drawing.line([(self.x(value), self.top), (self.x(value), self.bottom)], colour)

    def band(self, at: Iterable[float], low: Iterable[float], high: Iterable[float], colour: str) -> None:
        """What lies between two curves, in a pale colour."""
        upper, lower = (self.at(zip(map(float, at), map(float, edge), strict=True)) for edge in (high, low))
        self.drawing.areas([[*upper, *lower[::-1]]], colour, 0.12)

    def y_axis(self, said: Callable[[float], str] | None = None, at: Sequence[float] | None = None) -> None:
        """Grid lines with their values."""
        found = at if at is not None else ticks(*self.y_domain, max(2, round(self.height / 45)))
        places = [(tick, self.y(tick)) for tick in found]
        self.drawing.lines([[(self.left, y), (self.right, y)] for _, y in places], "line")
        texts = ticks_text(found) if said is None else map(said, found)
        for text, (_, y) in zip(texts, places, strict=True):
            self.drawing.text(self.left - 6, y + 3.8, text, anchor="end")

    def x_axis(
        self, said: Callable[[float], str] = tick_text, at: Sequence[float] | None = None, whole: bool = False
    ) -> None:
        """The line below the panel, with ticks; layers are counted in whole numbers."""
        found = at if at is not None else ticks(*self.x_domain, max(2, round(self.width / 62)), whole)
        base = [[(self.left, self.bottom), (self.right, self.bottom)]]
        self.drawing.lines(
            base + [[(self.x(tick), self.bottom), (self.x(tick), self.bottom + 4)] for tick in found], "soft"
        )
        for tick in found:
            self.drawing.text(self.x(tick), self.bottom + 16, said(tick), anchor="middle")


def panel(
    width: float, height: float, x_domain: Domain, y_domain: Domain, *, title: str = "", x_label: str = "",
    y_label: str = "", label: str = "", left: float | None = None,
) -> Panel:  # fmt: skip
    """A drawing of one panel with its labels; axes are left to the caller, who knows what the ticks say."""
    drawing = Drawing(width, height, label or title)
    top, bottom = (28.0 if title else 10.0), (42.0 if x_label else 24.0)
    left = left if left is not None else 60.0 if y_label else 44.0
    found = Panel(drawing, left, top, width - left - 14, height - top - bottom, x_domain, y_domain)
    if title:
        drawing.title(left, 15, short(title, width - left))
    if x_label:
        drawing.text(found.left + found.width / 2, height - 6, x_label, anchor="middle")
    if y_label:
        drawing.text(12, found.top + found.height / 2, y_label, anchor="middle", turn=-90)
    drawing.data["frame"] = " ".join(f"{v:.6g}" for v in (*found.frame, *x_domain, *y_domain))
    return found


def ticks(low: float, high: float, count: int, whole: bool = False) -> list[float]:
    """Round values inside a range, integers only when they must be `whole`.

    >>> ticks(0.0, 1.0, 4)
    [0.0, 0.25, 0.5, 0.75, 1.0]
    >>> ticks(0.0, 10.0, 4, whole=True)
    [0.0, 5.0, 10.0]
    """
    rough = max((high - low) / count, 1.0 if whole else 0.0)
    power = 10.0 ** math.floor(math.log10(rough))
    steps = [m * power for m in (1, 2, 2.5, 5, 10) if not whole or float(m * power).is_integer()]
    step = next((step for step in steps if step >= rough * 0.999), 10 * power)
    first = math.ceil(low / step - 1e-9)
    return [float(f"{k * step:.10g}") for k in range(first, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten inside a range of powers, or 1, 2 and 5 times them where that range is short.

    >>> log_ticks(-3.2, 2.1), [round(10**t, 3) for t in log_ticks(-0.1, 0.8)]
    ([-3.0, -2.0, -1.0, 0.0, 1.0, 2.0], [1.0, 2.0, 5.0])
    """
    if high - low < 1.5:
        near = [k + math.log10(m) for k in range(math.floor(low), math.ceil(high) + 1) for m in (1, 2, 5)]
        found = [tick for tick in near if low <= tick <= high]
        if len(found) > 1:
            return found
        finer = ticks(10.0**low, 10.0**high, 3)
        return [math.log10(tick) for tick in finer if tick > 0]
    every = max(1, math.ceil((high - low) / 6))
    return [float(k) for k in range(math.ceil(low), math.floor(high) + 1) if k % every == 0]


def span(values: Iterable[float], room: float = 0.06) -> Domain:
    """The range of the finite values with some room; never empty."""
    finite = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    low, high = min(finite), max(finite)
    # what differs by rounding alone is drawn flat, not magnified
    spread = high - low if high - low > _ROUNDING * max(abs(low), abs(high)) else 0.0
    pad = (spread or abs(high) or 1.0) * (room if spread else max(room, 0.06))
    return low - pad, high + pad


def line_sample(drawing: Drawing, x: float, y: float, colour: str, dash: str, said: str) -> None:
    """An entry of a legend: a piece of the line and what it is."""
    drawing.line([(x, y - 4), (x + 28, y - 4)], colour, 2, dash)
    drawing.text(x + 34, y, said)


def swatches(drawing: Drawing, x: float, y: float, entries: Iterable[tuple[str, str]]) -> None:
    """Coloured squares and what they stand for, in one row."""
    for colour, said in entries:
        drawing.rect(x, y - 9, 10, 10, colour)
        drawing.text(x + 15, y, said)
        x += 15 + 6.2 * len(said) + 18
