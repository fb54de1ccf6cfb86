"""Metrics along the residual stream, the form of the paper's Figure 4, and its small sister for a first look."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from unsmooth.analysis import Measurement
from unsmooth.errors import OptionError, PointError
from unsmooth.figures.axes import line_sample, log_ticks, panel, span
from unsmooth.figures.drawing import Drawing, grid
from unsmooth.figures.palette import model_colour, model_dash
from unsmooth.figures.text import power_text, short
from unsmooth.metrics.registry import metric_named

# Half steps: the stream between attention and MLP lies between two layers.
_STEP = {"pre": 0.0, "mid": 0.5, "post": 1.0}
Scale = Literal["linear", "log"]


class Stop(NamedTuple):
    """One point of the stream; depth i is the input of layer i, and the depth of the model its last output."""

    point: str
    depth: float
    mean: float
    std: float


def depth(
    measurements: Mapping[str, Measurement] | Measurement, tokens: str | None = None,
    metrics: Sequence[str] | None = None, *, scale: Scale = "linear",
) -> Drawing:  # fmt: skip
    """Each metric along the residual stream, models overlaid, with a band of one standard deviation over samples.

    Args:
        measurements: one measurement, or several by the names to show.
        tokens: the token policy to show; the first one measured by default.
        metrics: which ones, by name; all that every measurement holds by default.
        scale: `log` for a logarithmic axis, where all values are positive.
    """
    named = measurements if isinstance(measurements, Mapping) else {"": measurements}
    settings = [m.about.settings for m in named.values()]
    policy = tokens or settings[0].tokens[0]
    for known in (each.tokens for each in settings):
        if policy not in known:
            raise OptionError.unknown("token policy of this measurement", policy, known)
    shared = [name for name in settings[0].metrics if all(name in each.metrics for each in settings)]
    for name in metrics or ():
        if name not in shared:
            raise OptionError.unknown("metric of these measurements", name, shared)
    layers = [depth_of(m) for m in named.values()]
    panels = []
    for metric in metrics or shared:
        curves = [stream(m, metric, policy) for m in named.values()]
        if not any(curves):
            raise PointError("no point of the residual stream was measured: measure with points='residual' or 'all'")
        panels.append(depth_panel(curves, layers, scale=scale, title=metric_named(metric).title, wide=380, tall=290))
    names = [name for name in named if name]
    found = grid(panels, across=3, bottom=8 + 17 * math.ceil(len(names) / 4))
    found.label = f"{', '.join(names) or 'the model'}: smoothness by depth"
    each = max(found.width / 4, 190)
    for i, name in enumerate(names):
        x, y = 44 + each * (i % 4), found.height - 4 - 17 * (math.ceil(len(names) / 4) - 1 - i // 4)
        line_sample(found, x, y, model_colour(i), model_dash(i), short(name, each - 40, 11))
    return found


def depth_panel(
    curves: Sequence[Sequence[Stop]], layers: Sequence[int], *, scale: Scale = "linear", band: bool = True,
    title: str = "", wide: float = 346, tall: float = 250, label: str = "",
) -> Drawing:  # fmt: skip
    """One metric, a curve for each model. Where depths differ, each runs from its first input to its last output."""
    log = scale == "log" and all(stop.mean > 0 for curve in curves for stop in curve)
    low = min((stop.mean for curve in curves for stop in curve if log), default=1.0) / 1.15

    def height(value: float) -> float:
        return math.log10(max(value, low)) if log else value

    means = [height(stop.mean) for curve in curves for stop in curve]
    edges = [v for curve in curves for s in curve if band and not log for v in (s.mean - s.std, s.mean + s.std)]
    deepest = max(layers, default=1)
    relative = len(set(layers)) > 1
    said = (
        "relative depth: 0 is the first input, 1 the last output" if relative
        else f"depth: {deepest} is the output of layer {deepest - 1}" if wide < 300
        else f"depth: i is the input of layer i, {deepest} the output of layer {deepest - 1}"
    )  # fmt: skip
    plot = panel(
        wide, tall, (0.0, 1.0 if relative else float(deepest)), span([*means, *edges]), title=title, x_label=said,
        label=label,
    )  # fmt: skip
    plot.y_axis(power_text, log_ticks(*plot.y_domain)) if log else plot.y_axis()
    plot.x_axis(whole=not relative)
    for index, (curve, count) in enumerate(zip(curves, layers, strict=True)):
        colour, across = model_colour(index), float(count) if relative else 1.0
        mine = plot.drawing.group(model=index)
        upper = plot.at([(s.depth / across, height(s.mean + s.std)) for s in curve])
        lower = plot.at([(s.depth / across, height(s.mean - s.std)) for s in curve])
        if band:
            mine.group(clip=plot.frame, part="band").areas([[*upper, *lower[::-1]]], colour, 0.12)
        line = plot.at([(s.depth / across, height(s.mean)) for s in curve])
        mine.line(line, colour, 2, model_dash(index))
        every = math.ceil(count / 16)
        whole = [p for p, s in zip(line, curve, strict=True) if s.depth % every == 0]
        mine.dots(whole if len(line) > 1 else line, colour, 5.5)
    return plot.drawing


def sparkline(curves: Sequence[Sequence[Stop]], layers: Sequence[int], least: float = 0.0) -> Drawing:
    """Curves laid over each other without axes: the first look at all models; their height is `least` or more."""
    wide, tall = 230.0, 96.0
    drawing = Drawing(wide, tall)
    finite = [s.mean for curve in curves for s in curve if math.isfinite(s.mean)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    around = max(least - (high - low), 0.0) / 2
    low, high = low - around, high + around
    drawing.line([(4, tall - 1), (wide - 8, tall - 1)], "line")
    for index, (curve, count) in enumerate(zip(curves, layers, strict=True)):
        deepest = count if len(set(layers)) > 1 else max(layers)
        points = [
            (4 + s.depth / deepest * (wide - 12), tall - 8 - (s.mean - low) / (high - low or 1.0) * (tall - 16))
            for s in curve
            if math.isfinite(s.mean) and s.depth % 1 == 0
        ]
        mine = drawing.group(model=index)
        mine.line(points, model_colour(index), 2.2, model_dash(index))
        mine.dots(points[-1:], model_colour(index), 7)
    return drawing


def line_key(index: int) -> Drawing:
    """A piece of a model's line, with its dot: the legend's entry on a page."""
    drawing = Drawing(30, 12)
    drawing.line([(0, 6), (30, 6)], model_colour(index), 2, model_dash(index))
    drawing.dots([(15, 6)], model_colour(index), 6)
    return drawing


def stream(measurement: Measurement, metric: str, policy: str) -> list[Stop]:
    """The residual stream's values in order of depth, each depth once."""
    found: dict[float, Stop] = {}
    for cell, moments in measurement.cells.items():
        if cell.metric == metric and cell.tokens == policy and (at := place(cell.point)) is not None:
            std = moments.std if math.isfinite(moments.std) else 0.0
            mean = moments.mean if math.isfinite(moments.mean) else math.nan
            found.setdefault(at, Stop(cell.point, at, mean, std))
    return sorted(found.values(), key=lambda stop: stop.depth)


def place(point: str) -> float | None:
    """How many layers lie before a point of the residual stream; None for a point that is not in it.

    >>> place("embed"), place("blocks.3.mid"), place("blocks.3.norm1")
    (0.0, 3.5, None)
    """
    if point == "embed":
        return 0.0
    layer, _, name = point.removeprefix("blocks.").partition(".")
    return int(layer) + _STEP[name] if name in _STEP else None


def depth_of(measurement: Measurement) -> int:
    """The number of layers."""
    return int(measurement.about.model.layers)
