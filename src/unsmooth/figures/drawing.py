"""A small SVG writer: panels with axes, lines, bands, bars, dots and pixel images. Text in, text out."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

import numpy as np
from numpy.typing import NDArray

INK, SOFT, LINE = "#1c1d20", "#5c6066", "#dcd8cf"
SMOOTH, SHARP, ZERO = "#1f63a8", "#c4540f", "#b9b4a9"
KIND_COLOURS = {"LayerNorm": "#9a958a", "Attention": "#7a4fb5", "MLP": "#11866f", "Attention + MLP": "#466b92"}
MODEL_COLOURS = ("#1c1d20", "#c2267f", "#0d8f7c", "#9a6a00", "#5a55d6", "#6b7a2a")
DASHES = ("", "7 3", "2 2.5", "9 3 2 3", "12 4", "4 2 1 2")
_FONT = "Helvetica, Arial, 'Liberation Sans', sans-serif"


@dataclass
class Drawing:
    """An SVG image under construction."""

    width: float
    height: float
    parts: list[str] = field(default_factory=list)

    def text(self, x: float, y: float, said: object, *, size: float = 11, anchor: str = "start", colour: str = SOFT,
             weight: str = "normal", turn: float = 0) -> None:  # fmt: skip
        """Words, escaped."""
        where = f'transform="translate({x:.1f} {y:.1f}) rotate({turn})"' if turn else f'x="{x:.1f}" y="{y:.1f}"'
        self.parts.append(
            f'<text {where} font-size="{size}" text-anchor="{anchor}" fill="{colour}" font-weight="{weight}">'
            f"{escape(str(said))}</text>"
        )

    def rect(self, x: float, y: float, width: float, height: float, fill: str, opacity: float = 1.0) -> None:
        """A filled rectangle."""
        self.parts.append(
            f'<rect x="{x:.2f}" y="{y:.2f}" width="{max(width, 0):.2f}" height="{max(height, 0):.2f}" fill="{fill}"'
            + (f' opacity="{opacity:g}"/>' if opacity < 1 else "/>")
        )

    def line(
        self, points: Iterable[tuple[float, float]], colour: str, width: float = 1, dash: str = "",
        inside: Panel | None = None,
    ) -> None:  # fmt: skip
        """A line through the points that exist; gaps stay gaps. What leaves the panel `inside` is cut off."""
        drawn, pen = [], "M"
        for x, y in points:
            if not (math.isfinite(x) and math.isfinite(y)):
                pen = "M"
                continue
            drawn.append(f"{pen}{x:.2f} {y:.2f}")
            pen = "L"
        style = f' stroke-dasharray="{dash}"' if dash else ""
        style += f' clip-path="url(#{self._clip(inside)})"' if inside is not None else ""
        self.parts.append(f'<path d="{"".join(drawn)}" fill="none" stroke="{colour}" stroke-width="{width}"{style}/>')

    def _clip(self, panel: Panel) -> str:
        """The name of a clipping rectangle as large as the panel."""
        name = f"clip-{panel.left:g}-{panel.top:g}".replace(".", "_")
        shape = f'x="{panel.left:g}" y="{panel.top:g}" width="{panel.width:g}" height="{panel.height:g}"'
        definition = f'<clipPath id="{name}"><rect {shape}/></clipPath>'
        if definition not in self.parts:
            self.parts.append(definition)
        return name

    def area(self, points: Sequence[tuple[float, float]], fill: str, opacity: float) -> None:
        """A filled outline."""
        kept = [f"{x:.2f} {y:.2f}" for x, y in points if math.isfinite(x) and math.isfinite(y)]
        if kept:
            self.parts.append(f'<path d="M{"L".join(kept)}Z" fill="{fill}" opacity="{opacity:g}"/>')

    def dots(self, points: Iterable[tuple[float, float]], colour: str, size: float, opacity: float = 0.7) -> None:
        """Many dots in one element: lines of no length with round ends."""
        d = "".join(f"M{x:.1f} {y:.1f}h0" for x, y in points)
        if d:
            self.parts.append(
                f'<path d="{d}" fill="none" stroke="{colour}" stroke-width="{size}" stroke-linecap="round" '
                f'opacity="{opacity:g}"/>'
            )

    def image(self, x: float, y: float, width: float, height: float, pixels: NDArray[np.uint8]) -> None:
        """An array (rows, columns, 3) as sharp-edged pixels."""
        address = "data:image/png;base64," + base64.b64encode(png(pixels)).decode()
        self.parts.append(
            f'<image x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}" preserveAspectRatio="none" '
            f'style="image-rendering:pixelated" href="{address}"/>'
        )

    def svg(self) -> str:
        """The whole file."""
        size = f'width="{self.width:g}" height="{self.height:g}" viewBox="0 0 {self.width:g} {self.height:g}"'
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="{_FONT}">'
            f'<rect width="100%" height="100%" fill="#fff"/>{"".join(self.parts)}</svg>\n'
        )


@dataclass
class Panel:
    """A plot area inside a drawing; `x` and `y` turn values into positions."""

    drawing: Drawing
    left: float
    top: float
    width: float
    height: float
    x_domain: tuple[float, float]
    y_domain: tuple[float, float]

    def x(self, value: float) -> float:
        """The position of a value on the horizontal axis."""
        low, high = self.x_domain
        return self.left + (value - low) / (high - low) * self.width

    def y(self, value: float) -> float:
        """The position of a value on the vertical axis."""
        low, high = self.y_domain
        return self.top + self.height - (value - low) / (high - low) * self.height

    def axes(self, title: str = "", x_label: str = "", y_label: str = "", percent: bool = False) -> None:
        """Grid, ticks, labels and a title; layers are counted in whole numbers."""
        d, bottom = self.drawing, self.top + self.height
        for tick in ticks(*self.y_domain, max(2, round(self.height / 45))):
            d.line([(self.left, self.y(tick)), (self.left + self.width, self.y(tick))], LINE)
            d.text(
                self.left - 5,
                self.y(tick) + 3.5,
                f"{label(tick * 100)} %" if percent else label(tick),
                anchor="end",
                size=10,
            )
        for tick in ticks(*self.x_domain, max(2, round(self.width / 60)), whole=x_label == "layer"):
            d.line([(self.x(tick), bottom), (self.x(tick), bottom + 4)], SOFT)
            d.text(self.x(tick), bottom + 15, label(tick), anchor="middle", size=10)
        d.line([(self.left, bottom), (self.left + self.width, bottom)], SOFT)
        if title:
            d.text(self.left, self.top - 8, title, size=12, colour=INK, weight="bold")
        if x_label:
            d.text(self.left + self.width / 2, bottom + 30, x_label, anchor="middle")
        if y_label:
            d.text(self.left - 40, self.top + self.height / 2, y_label, anchor="middle", turn=-90)


def ticks(low: float, high: float, count: int, whole: bool = False) -> list[float]:
    """Round values inside a range, integers only when they must be `whole`.

    >>> ticks(0.0, 1.0, 4)
    [0.0, 0.25, 0.5, 0.75, 1.0]
    >>> ticks(0.0, 10.0, 4, whole=True)
    [0.0, 5.0, 10.0]
    """
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    steps = [m * power for m in (1, 2, 2.5, 5, 10) if not whole or float(m * power).is_integer()]
    step = next((step for step in steps if step >= rough * 0.999), 1.0)
    first = math.ceil(low / step - 1e-9)
    return [float(f"{k * step:.10g}") for k in range(first, math.floor(high / step + 1e-9) + 1)]


def label(value: float) -> str:
    """A tick's text."""
    return f"{value:.4g}".replace("-", "−")


def span(values: Iterable[float], room: float = 0.06) -> tuple[float, float]:
    """The range of the finite values with some room; never empty."""
    finite = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    low, high = min(finite), max(finite)
    pad = (high - low or abs(high) or 1.0) * room
    return low - pad, high + pad


def png(pixels: NDArray[np.uint8]) -> bytes:
    """An RGB array as a PNG file."""
    rows, columns, _ = pixels.shape
    raw = b"".join(b"\0" + row.tobytes() for row in np.ascontiguousarray(pixels, dtype=np.uint8))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", columns, rows, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")
