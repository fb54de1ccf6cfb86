"""Marks as SVG, in few bytes: pages hold many of them."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Callable, Mapping
from html import escape
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from unsmooth.figures.marks import FONT_SIZE, Group, Mark, Stroke, Words

_MANY = 100  # dots of one kind, from which on they are a cloud


def element(mark: Mark, paint: Callable[[str], str]) -> str:
    """A mark as an element; `paint` makes what stands in the file of a colour's name."""
    if isinstance(mark, Group):
        inside = "".join(element(each, paint) for each in mark.marks)
        if not inside:
            return ""
        if mark.clip is not None:  # an inner SVG cuts off what leaves it, and needs no name that must be unique
            left, top, width, height = (_number(v) for v in mark.clip)
            view = f'x="{left}" y="{top}" width="{width}" height="{height}" viewBox="{left} {top} {width} {height}"'
            inside = f"<svg {view}>{inside}</svg>"
        moved = f' transform="translate({_number(mark.x)} {_number(mark.y)})"' if mark.x or mark.y else ""
        given, title = attributes(mark.data), f"<title>{escape(mark.title)}</title>" if mark.title else ""
        return f"<g{moved}{given}>{title}{inside}</g>" if moved or given or title else inside
    if isinstance(mark, Stroke):
        return _path(mark, paint(mark.fill), paint(mark.stroke))
    if isinstance(mark, Words):
        at = f"{_number(mark.x)} {_number(mark.y)}"
        where = (
            f'transform="translate({at}) rotate({mark.turn:g})"' if mark.turn
            else f'x="{_number(mark.x)}" y="{_number(mark.y)}"'
        )  # fmt: skip
        style = f' font-size="{mark.size:g}"' if mark.size != FONT_SIZE else ""
        style += f' text-anchor="{mark.anchor}"' if mark.anchor != "start" else ""
        style += f' fill="{paint(mark.colour)}"' if mark.colour != "soft" else ""
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


def attributes(data: Mapping[str, object]) -> str:
    """Data attributes of an element."""
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
