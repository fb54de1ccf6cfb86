"""The page's first look: the models' curves laid over each other, and one row per model with both ends."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from unsmooth.analysis import Measurement
from unsmooth.figures.drawing import DASHES
from unsmooth.metrics.registry import METRICS
from unsmooth.page.course import course, leading_metrics, ways
from unsmooth.page.data import shared_policies
from unsmooth.page.glossary import linked
from unsmooth.page.words import DOES, number_text

if TYPE_CHECKING:
    from unsmooth.analysis.subject import Subject

TOKENS = {
    "all": "all tokens",
    "patches": "patch tokens",
    "content": "tokens but special ones and padding",
    "no-outliers": "tokens but outliers",
}
_WIDTH, _HEIGHT = 230, 96
Curve = list[tuple[float, float]]


def glance_table(subjects: Sequence[Subject]) -> str:
    """The table as HTML: under each metric's name the curves of all models, drawn without a script."""
    metrics, policy = leading_metrics(subjects), shared_policies(subjects)[0]
    titles = "".join(f'<th scope="col">{linked(escape(METRICS[metric].title))}</th>' for metric in metrics)
    curves = "".join(
        f'<td data-label="{escape(METRICS[metric].title)}">'
        f"{_overlay([_curve(s.measurement, metric, policy) for s in subjects])}</td>"
        for metric in metrics
    )
    rows = []
    for index, subject in enumerate(subjects):
        cells = []
        for metric in metrics:
            *before, last = passed(subject.measurement, metric, policy)
            values = "".join(f"{number_text(value)} → " for value in before) + f"<b>{number_text(last)}</b>"
            cells.append(f'<td class="number" data-label="{escape(METRICS[metric].title)}">{values}</td>')
        word = linked(in_short(subject.measurement, metrics, policy, DOES))
        rows.append(
            f'<tr><th scope="row">{_sample(index)}{escape(subject.name)}</th>{"".join(cells)}<td>{word}</td></tr>'
        )
    return (
        '<div class="scroll"><table class="glance"><caption>From the input of the first layer to the output of the '
        f"last, by way of where the curve turns ({escape(TOKENS.get(policy, policy))})</caption><thead><tr>"
        f'<th scope="col">model</th>{titles}<th scope="col">in short</th></tr></thead><tbody><tr class="curves">'
        f"<td></td>{curves}<td></td></tr>{''.join(rows)}</tbody></table></div>"
    )


def passed(measurement: Measurement, metric: str, policy: str) -> list[float]:
    """The values of a metric at the first layer's input, where its course turns, and at the last layer's output."""
    stretches = course(measurement, metric, policy)
    return [stretches[0].before, *(stretch.after for stretch in stretches)]


def in_short(measurement: Measurement, metrics: Sequence[str], policy: str, does: Mapping[int, str]) -> str:
    """The course of the first metric in a few words; `does` has the verbs. Which metric it is, where others differ."""
    layers = measurement.about.model.layers
    first, *others = (course(measurement, metric, policy) for metric in metrics)
    clauses = []
    for stretch in first:
        verb = does[stretch.way] if stretch.way else "no clear change"
        one = f" in layer {stretch.first}" if stretch.first == stretch.last and layers > 1 else ""
        clauses.append(f"{verb}{one or (f' through layer {stretch.last}' if stretch is not first[-1] else '')}")
    differ = any(ways(found) != ways(first) for found in others)
    return ", then ".join(clauses) + (f" (by {METRICS[metrics[0]].title})" if differ else "")


def _curve(measurement: Measurement, metric: str, policy: str) -> Curve:
    """(layers passed, value) at the input and after every layer."""
    return [
        (0.0 if cell.point == "blocks.0.pre" else int(cell.point.split(".")[1]) + 1.0, moments.mean)
        for cell, moments in measurement.cells.items()
        if cell.metric == metric and cell.tokens == policy and cell.point.endswith((".post", "blocks.0.pre"))
    ]


def _overlay(curves: Sequence[Curve]) -> str:
    known = [(x, y) for curve in curves for x, y in curve if math.isfinite(y)]
    if not known:
        return ""
    low, high = min(y for _, y in known), max(y for _, y in known)
    deepest, span = max(1.0, *(x for x, _ in known)), high - low or 1.0

    def place(x: float, y: float) -> tuple[float, float]:
        return 4 + x / deepest * (_WIDTH - 12), _HEIGHT - 8 - (y - low) / span * (_HEIGHT - 16)

    marks = []
    for index, curve in enumerate(curves):
        points = [place(x, y) for x, y in curve if math.isfinite(y)]
        if points:
            path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
            x, y = points[-1]
            marks.append(
                f'<path d="{path}" style="stroke:{_colour(index)}" stroke-dasharray="{DASHES[index % 6]}"/>'
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" style="fill:{_colour(index)}"/>'
            )
    base = f'<path class="base" d="M4 {_HEIGHT - 1}H{_WIDTH - 8}"/>'
    return (
        f'<svg class="overlay" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" aria-hidden="true">'
        f"{base}{''.join(marks)}</svg>"
    )


def _sample(index: int) -> str:
    """A piece of the model's line, as in the curves."""
    return (
        f'<svg class="line-sample" width="26" height="10" aria-hidden="true"><path d="M0 5H26" '
        f'style="stroke:{_colour(index)}" stroke-dasharray="{DASHES[index % 6]}"/></svg>'
    )


def _colour(index: int) -> str:
    return f"var(--model-{index % 6})"
