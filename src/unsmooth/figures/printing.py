"""PNG and PDF of a drawing: its marks replayed into matplotlib, whose fonts travel in the file; no browser."""

from __future__ import annotations

import io
import warnings
from typing import TYPE_CHECKING, Any

from unsmooth.errors import MissingExtraError
from unsmooth.figures.drawing import Drawing
from unsmooth.figures.marks import Group, Mark, Pixels, Stroke
from unsmooth.figures.palette import value

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.transforms import BboxBase

_POINTS = 0.75  # of a CSS pixel: 72 to an inch instead of 96
_NARROWER = 0.9  # DejaVu, which matplotlib brings, is wider than the fonts that drawings are laid out for
_ANCHORS = {"start": "left", "middle": "center", "end": "right"}
_SETTINGS = {"pdf.fonttype": 42, "font.family": "DejaVu Sans", "text.usetex": False}


def require_matplotlib(kind: str) -> None:
    """An error that names the extra, where matplotlib is absent."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MissingExtraError.needed("matplotlib", "report", f"writing figures as {kind}") from error


def printed(drawing: Drawing, kind: str) -> bytes:
    """The drawing as a file of this kind, on white."""
    require_matplotlib(kind.upper())
    import matplotlib
    from matplotlib.figure import Figure

    file = io.BytesIO()
    with matplotlib.rc_context(_SETTINGS), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a letter that DejaVu lacks is drawn as a box
        figure = Figure(figsize=(drawing.width / 96, drawing.height / 96), facecolor="white")
        axes = figure.add_axes((0.0, 0.0, 1.0, 1.0), xlim=(0, drawing.width), ylim=(drawing.height, 0))
        axes.set_axis_off()
        for mark in drawing.marks:
            _draw(axes, mark, 0.0, 0.0, None)
        axes.set(xlim=(0, drawing.width), ylim=(drawing.height, 0))  # images set their own
        dated = {"CreationDate": None} if kind == "pdf" else None  # the same bytes for the same drawing
        figure.savefig(file, format=kind, dpi=192, metadata=dated)
    return file.getvalue()


def _draw(axes: Axes, mark: Mark, x: float, y: float, clip: BboxBase | None) -> None:
    from matplotlib.transforms import Bbox, TransformedBbox

    if isinstance(mark, Group):
        x, y = x + mark.x, y + mark.y
        if mark.clip is not None:
            left, top, width, height = mark.clip
            clip = TransformedBbox(Bbox.from_bounds(left + x, top + y, width, height), axes.transData)
        for each in mark.marks:
            _draw(axes, each, x, y, clip)
        return
    if isinstance(mark, Stroke):
        artist: Any = axes.add_patch(_patch(mark, x, y)) if not mark.dots else _dots(axes, mark, x, y)
    elif isinstance(mark, Pixels):
        extent = (x + mark.x, x + mark.x + mark.width, y + mark.y + mark.height, y + mark.y)
        fine = mark.pixels.shape[0] > 2 * mark.height  # more rows than the file has
        artist = axes.imshow(
            mark.pixels, extent=extent, aspect="auto", interpolation="antialiased" if fine else "nearest"
        )
    else:
        artist = axes.text(
            x + mark.x, y + mark.y, mark.said, fontsize=mark.size * _POINTS * _NARROWER, ha=_ANCHORS[mark.anchor],
            va="baseline", color=value(mark.colour), weight="bold" if mark.bold else "normal", rotation=-mark.turn,
            rotation_mode="anchor", parse_math=False,
        )  # fmt: skip
    artist.set_zorder(len(axes.get_children()))  # in the order of drawing
    if clip is not None:
        artist.set_clip_box(clip)


def _patch(mark: Stroke, x: float, y: float) -> Any:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    points: list[tuple[float, float]] = []
    codes: list[Any] = []
    for line in mark.lines:
        moved = [(x + a, y + b) for a, b in line]
        points += [*moved, moved[0]] if mark.closed else moved
        codes += [Path.MOVETO, *[Path.LINETO] * (len(line) - 1), *([Path.CLOSEPOLY] if mark.closed else [])]
    style: Any = (0, tuple(float(v) * _POINTS for v in mark.dash.split())) if mark.dash else "solid"
    return PathPatch(
        Path(points, codes), facecolor=_rgb(mark.fill), edgecolor=_rgb(mark.stroke), alpha=mark.opacity,
        linewidth=mark.width * _POINTS if mark.stroke != "none" else 0, linestyle=style, capstyle="butt",
    )  # fmt: skip


def _dots(axes: Axes, mark: Stroke, x: float, y: float) -> Any:
    points = [(x + line[0][0], y + line[0][1]) for line in mark.lines]
    (artist,) = axes.plot(
        [p[0] for p in points], [p[1] for p in points], "o", color=_rgb(mark.stroke), alpha=mark.opacity,
        markersize=mark.width * _POINTS, markeredgewidth=0,
    )  # fmt: skip
    return artist


def _rgb(colour: str) -> Any:
    found = value(colour)
    if found.startswith("rgb"):
        return tuple(int(v) / 255 for v in found[4:-1].split(","))
    return found
