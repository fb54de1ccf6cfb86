"""One row per model: where its metrics start and end, with the curve between as a small line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from unsmooth.measure import Measurement
from unsmooth.measure.registry import METRICS
from unsmooth.report.findings import SHARPENS, SMOOTHS, ends, leading_metrics, number_text, verdict
from unsmooth.report.page_data import shared_policies

if TYPE_CHECKING:
    from unsmooth.report.subject import Subject

WORDS = {
    "smooths": SMOOTHS.format("smooths with depth"),
    "sharpens": SHARPENS.format("sharpens with depth"),
    "steady": "no clear change",
    "mixed": "metrics disagree",
}
_WIDTH, _HEIGHT = 96, 30


def glance_table(subjects: Sequence[Subject]) -> str:
    """The table as HTML; the lines of one column share their scale."""
    metrics, policy = leading_metrics(subjects), shared_policies(subjects)[0]
    curves = {metric: [_curve(s.measurement, metric, policy) for s in subjects] for metric in metrics}
    head = "".join(f'<th scope="col">{escape(METRICS[metric].title)}</th>' for metric in metrics)
    rows = []
    for index, subject in enumerate(subjects):
        cells = []
        for metric in metrics:
            start, end = ends(subject.measurement, metric, policy)
            finite = [value for curve in curves[metric] for value in curve if math.isfinite(value)]
            line = _sparkline(curves[metric][index], min(finite, default=0.0), max(finite, default=1.0), index)
            cells.append(
                f'<td class="number" data-label="{escape(METRICS[metric].title)}">{line}{number_text(start.mean)} → '
                f"<b>{number_text(end.mean)}</b></td>"
            )
        swatch = f'<i class="swatch" style="background:var(--model-{index % 6})"></i>'
        word = WORDS[verdict(subject.measurement, metrics, policy)]
        rows.append(f'<tr><th scope="row">{swatch}{escape(subject.name)}</th>{"".join(cells)}<td>{word}</td></tr>')
    return (
        '<div class="scroll"><table class="glance"><caption>From the input of the first layer to the output of the '
        f'last ({escape(policy)} tokens)</caption><thead><tr><th scope="col">model</th>{head}<th scope="col">in short'
        f"</th></tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _curve(measurement: Measurement, metric: str, policy: str) -> list[float]:
    return [
        moments.mean
        for cell, moments in measurement.cells.items()
        if cell.metric == metric and cell.tokens == policy and cell.point.endswith((".post", "blocks.0.pre"))
    ]


def _sparkline(values: Sequence[float], low: float, high: float, index: int) -> str:
    span = high - low or 1.0
    step = (_WIDTH - 8) / max(1, len(values) - 1)
    points = [
        (4 + i * step, _HEIGHT - 4 - (value - low) / span * (_HEIGHT - 8))
        for i, value in enumerate(values)
        if math.isfinite(value)
    ]
    if not points:
        return ""
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    x, y = points[-1]
    colour = f"var(--model-{index % 6})"
    return (
        f'<svg class="sparkline" width="{_WIDTH}" height="{_HEIGHT}" aria-hidden="true"><path d="{path}" '
        f'style="stroke:{colour}"/><circle cx="{x:.1f}" cy="{y:.1f}" r="3" style="fill:{colour}"/></svg>'
    )
