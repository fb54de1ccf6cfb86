"""What an edit costs: the task's score against HFC/LFC, a path of growing strength for every edit."""

from __future__ import annotations

from unsmooth.analysis import Sweep
from unsmooth.analysis.sweep import HEADLINE
from unsmooth.figures.axes import line_sample, panel, span
from unsmooth.figures.drawing import Drawing
from unsmooth.figures.palette import DASHES, direction
from unsmooth.figures.text import number_text
from unsmooth.metrics.registry import metric_named


def prices(sweep: Sweep, tokens: str | None = None, *, name: str = "", wide: float = 760, tall: float = 400) -> Drawing:
    """Paths from the unedited model; blue ones smooth, orange ones sharpen; whiskers are 95 % of the difference."""
    policy, task = sweep.policy(tokens), sweep.task
    rows = 18.0 * len(sweep.edits)
    points = [p for swept in sweep.edits for p in swept.points]
    start = sweep.edits[0].points[0]
    heights = [start.score, *(start.score + d for p in points for d in (p.difference, p.low, p.high) if d is not None)]
    plot = panel(
        wide, tall - rows, span(p.smoothness[policy][HEADLINE] for p in points), span(heights, 0.12),
        title=f"{name or sweep.about.model.name}: what edits cost",
        x_label=f"HFC/LFC after the last block ({policy} tokens)",
        y_label=f"{task.name}, {task.unit} ({task.better} is better)",
        label=f"{task.name} against HFC/LFC for edits of growing strength",
    )  # fmt: skip
    plot.y_axis()
    plot.x_axis()
    plot.level(start.score, dash="3 3")
    for number, swept in enumerate(sweep.edits):
        at = [p.smoothness[policy][HEADLINE] for p in swept.points]
        colour = direction(at[-1] - at[0], metric_named(HEADLINE).sign)
        colour = "soft" if colour == "zero" else colour
        path = [(plot.x(x), plot.y(p.score)) for x, p in zip(at, swept.points, strict=True)]
        plot.drawing.line(path, colour, 1.8, DASHES[number % len(DASHES)])
        for (x, _), p in zip(path[1:], swept.points[1:], strict=True):
            if p.low is not None and p.high is not None:
                low, high = (plot.y(start.score + d) for d in (p.low, p.high))
                plot.drawing.line([(x, low), (x, high)], colour, 1.2, opacity=0.55)
        plot.drawing.dots(path[1:], colour, 6.5)
        plot.drawing.text(path[-1][0] + 7, path[-1][1] - 7, f"{swept.points[-1].strength:g}", colour=colour, size=10)
        y = tall - rows + 18 * number + 8
        line_sample(plot.drawing, plot.left, y, colour, DASHES[number % len(DASHES)], said(swept.name, swept.points))
    plot.drawing.dots([(plot.x(start.smoothness[policy][HEADLINE]), plot.y(start.score))], "ink", 8)
    plot.drawing.height = tall
    return plot.drawing


def said(name: str, points: tuple[object, ...]) -> str:
    """What a path is of: the edit, and its strengths.

    >>> from unsmooth.analysis.sweep import SweepPoint
    >>> said("high=0", (SweepPoint(0.0, 0.0, {}, 1.0), SweepPoint(0.5, 0.1, {}, 1.0)))
    'edit high=0, strength 0.5'
    """
    steps = ", ".join(number_text(point.strength) for point in points[1:])  # type: ignore[attr-defined]
    return f"edit {name}, strength {steps}"
