"""The waterfall: what each sub-layer does to a metric, one after the other."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

from unsmooth.analysis import Measurement
from unsmooth.analysis.measuring.cells import same_state
from unsmooth.analysis.measuring.changes import BLOCK_STEPS
from unsmooth.figures.axes import panel, span
from unsmooth.figures.by_depth import depth_of
from unsmooth.figures.drawing import Drawing
from unsmooth.figures.marks import Point
from unsmooth.figures.palette import direction
from unsmooth.metrics.registry import metric_named

# How a kind of layer is told apart: colour already says smoothing or sharpening.
LOOKS = {"Attention": "full", "Attention + MLP": "full", "MLP": "pale", "LayerNorm": "outlined"}


class Step(NamedTuple):
    """One bar: from the value at `before` to that at `after`."""

    layer: int
    at: float
    width: float
    before: str
    after: str
    start: float
    end: float
    kind: str


def measured_steps(measurement: Measurement, metric: str, policy: str, reading: str = "residual") -> list[Step]:
    """The steps of the forward pass whose two ends were measured."""
    values = {c.point: m.mean for c, m in measurement.cells.items() if c.metric == metric and c.tokens == policy}
    block = BLOCK_STEPS[reading, measurement.about.model.placement]
    found = []
    for layer in range(depth_of(measurement)):
        for number, (before, after, kind) in enumerate(block):
            own = f"blocks.{layer}.{before}"  # which some families show under the name of its state only
            start = values.get(own, values.get(same_state(own), math.nan))
            end = values.get(f"blocks.{layer}.{after}", math.nan)
            if math.isfinite(start) and math.isfinite(end):
                found.append(
                    Step(layer, layer + (number + 0.5) / len(block), 1 / len(block), before, after, start, end, kind)
                )
    return found


def steps(
    measurement: Measurement, metric: str | None = None, tokens: str | None = None, *, reading: str = "residual",
    name: str = "", wide: float = 1072, tall: float = 330,
) -> Drawing:  # fmt: skip
    """Bars that start where the one before ended. An arrow says up or down, its colour smoothing or sharpening."""
    settings = measurement.about.settings
    metric, tokens = metric or settings.metrics[0], tokens or settings.tokens[0]
    found = measured_steps(measurement, metric, tokens, reading)
    title = f"{name + ': ' if name else ''}{metric_named(metric).title}, step by step ({reading}, {tokens} tokens)"
    drawing = steps_panel(found, metric, depth_of(measurement), title=title, wide=wide, tall=tall - 22)
    drawing.height = tall
    steps_key(drawing, 60, tall - 6, {step.kind for step in found})
    return drawing


def steps_panel(
    found: list[Step], metric: str, layers: int, *, title: str = "", label: str = "", wide: float = 1072,
    tall: float | None = None,
) -> Drawing:  # fmt: skip
    """The bars of one metric. Layers are numbered in the middle of their bars."""
    tall = tall or (290 if wide > 620 else 240)
    y_domain = span([v for step in found for v in (step.start, step.end)])
    plot = panel(
        wide, tall, (0.0, float(layers)), y_domain, title=title, x_label="layer", y_label=metric_named(metric).title,
        label=label or title,
    )  # fmt: skip
    every = max(1, math.ceil(layers * 24 / plot.width))
    plot.y_axis()
    borders = [[(plot.x(i), plot.top), (plot.x(i), plot.bottom)] for i in range(0, layers + 1, every)]
    plot.drawing.lines(borders, "line")
    plot.x_axis(lambda at: str(int(at)), [i + 0.5 for i in range(0, layers, every)])
    joints = [
        [(plot.x(a.at + 0.42 * a.width), plot.y(a.end)), (plot.x(b.at - 0.42 * b.width), plot.y(b.start))]
        for a, b in pairwise(found)
        if a.end == b.start
    ]
    plot.drawing.lines(joints, "soft", opacity=0.6)
    kinds: dict[tuple[str, str], list[tuple[Point, ...]]] = {}
    for step in found:
        colour = direction(step.end - step.start, metric_named(metric).sign)
        left, right = plot.x(step.at - 0.42 * step.width), plot.x(step.at + 0.42 * step.width)
        kinds.setdefault((step.kind, colour), []).append(arrow(left, right, plot.y(step.start), plot.y(step.end)))
    for (kind, colour), bars in kinds.items():
        _bars(plot.drawing, bars, kind, colour)
    return plot.drawing


def arrow(left: float, right: float, start: float, end: float) -> tuple[Point, ...]:
    """A bar that ends in a point: its tip is at `end`."""
    middle, tip = (left + right) / 2, min(abs(end - start), 7.0, 0.6 * (right - left) + 1)
    if abs(end - start) < 1:  # a step of almost nothing is a line
        return ((left, start - 0.5), (right, start - 0.5), (right, start + 0.5), (left, start + 0.5))
    neck = end + math.copysign(tip, start - end)
    return ((left, start), (right, start), (right, neck), (middle, end), (left, neck))


def _bars(drawing: Drawing, bars: list[tuple[Point, ...]], kind: str, colour: str) -> None:
    look = LOOKS.get(kind, "full")
    if look == "outlined":
        drawing.areas(bars, "card", stroke=colour, width=1.3)
    else:
        drawing.areas(bars, colour, 0.45 if look == "pale" else 1.0)


def steps_key(drawing: Drawing, x: float, y: float, kinds: set[str]) -> None:
    """What colour and look of a bar say."""
    for colour, said in (("sharp", "sharpens"), ("smooth", "smooths")):
        drawing.rect(x, y - 9, 10, 10, colour)
        drawing.text(x + 16, y, said)
        x += 40 + 6.4 * len(said)
    for kind in LOOKS:
        if kind in kinds:
            _bars(drawing, [((x, y - 9), (x + 10, y - 9), (x + 10, y + 1), (x, y + 1))], kind, "soft")
            drawing.text(x + 16, y, kind)
            x += 40 + 6.4 * len(kind)
