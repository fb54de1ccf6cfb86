"""The page's first look: the models' curves laid over each other, and one row per model with both ends."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from unsmooth.analysis import Measurement
from unsmooth.analysis.measuring.outliers import WITHOUT, is_padded
from unsmooth.analysis.subject import Subject
from unsmooth.figures.by_depth import depth_of, line_key, sparkline, stream
from unsmooth.metrics.registry import DIRECTION, METRICS
from unsmooth.page.course import (
    SLIGHT_DIFFERENCE,
    SLIGHT_FACTOR,
    course,
    is_slight,
    leading_metrics,
    ways,
)
from unsmooth.page.data import shared_policies
from unsmooth.page.rounding import meanless, rounding
from unsmooth.page.words.course import alike
from unsmooth.page.words.glossary import linked
from unsmooth.page.words.phrases import DOES, does, measured_text

TOKENS = {
    "all": "all tokens",
    "patches": "patch tokens",
    "content": "tokens but special ones and padding",
    "no-outliers": "tokens but outliers",
}


def glance_table(subjects: Sequence[Subject]) -> str:
    """The table as HTML: under each metric's name the curves of all models, drawn without a script."""
    metrics, policy = leading_metrics(subjects), shared_policies(subjects)[0]
    titles = "".join(f'<th scope="col">{linked(escape(METRICS[metric].title))}</th>' for metric in metrics)
    curves = "".join(
        f'<td data-label="{escape(METRICS[metric].title)}">{_overlay(subjects, metric, policy)}</td>'
        for metric in metrics
    )
    rows = []
    for index, subject in enumerate(subjects):
        cells = []
        for metric in metrics:
            *before, last = passed(subject.measurement, metric, policy)
            values = "".join(f"{measured_text(value)} → " for value in before) + f"<b>{measured_text(last)}</b>"
            cells.append(f'<td class="number" data-label="{escape(METRICS[metric].title)}">{values}</td>')
        word = linked(in_short(subject.measurement, metrics, policy, DOES))
        rows.append(
            f'<tr><th scope="row">{_sample(index)}{escape(subject.name)}</th>{"".join(cells)}<td>{word}</td></tr>'
        )
    return (
        '<div class="scroll"><table class="glance"><caption>From the input of the first layer to the output of the '
        f"last, by way of where the curve turns ({escape(_tokens(subjects, policy))})</caption><thead><tr>"
        f'<th scope="col">model</th>{titles}<th scope="col">in short</th></tr></thead><tbody><tr class="curves">'
        f"<td></td>{curves}<td></td></tr>{''.join(rows)}</tbody></table></div>"
    )


def _tokens(subjects: Sequence[Subject], policy: str) -> str:
    padded = policy == WITHOUT and any(is_padded(subject.measurement) for subject in subjects)
    return TOKENS.get(policy, policy) + (" and padding" if padded else "")


def passed(measurement: Measurement, metric: str, policy: str) -> list[float]:
    """The values of a metric at the first layer's input, where its course turns, and at the last layer's output."""
    stretches = course(measurement, metric, policy)
    return [stretches[0].before, *(stretch.after for stretch in stretches)]


def in_short(measurement: Measurement, metrics: Sequence[str], policy: str, verbs: Mapping[int, str]) -> str:
    """The course of the first metric in a few words; `verbs` has the verbs. Which metric it is, where others differ."""
    layers = measurement.about.model.layers
    first, *others = (course(measurement, metric, policy) for metric in metrics)
    clauses = []
    for stretch in first:
        verb = does(stretch.way, stretch.slight, verbs, stretch.uneven) if stretch.way else "no clear change"
        one = f" in layer {stretch.first}" if stretch.first == stretch.last and layers > 1 else ""
        clauses.append(f"{verb}{one or (f' through layer {stretch.last}' if stretch is not first[-1] else '')}")
    differ = any(ways(found) != ways(first) for found in others) and not alike(measurement, metrics[0], policy)
    return ", then ".join(clauses) + (f" (by {METRICS[metrics[0]].title})" if differ else "")


def _overlay(subjects: Sequence[Subject], metric: str, policy: str) -> str:
    curves = [
        [stop for stop in stream(measurement, metric, policy) if not meanless(measurement, metric, stop.mean)]
        for measurement in (subject.measurement for subject in subjects)
    ]
    least = _least(subjects, metric, [stop.mean for curve in curves for stop in curve if math.isfinite(stop.mean)])
    return sparkline(curves, [depth_of(subject.measurement) for subject in subjects], least).html("overlay")


def _least(subjects: Sequence[Subject], metric: str, values: Sequence[float]) -> float:
    """The range of a picture without an axis: what the words call slight does not fill it, nor does rounding."""
    low, high = min(values, default=0.0), max(values, default=0.0)
    noise = max(rounding(subject.measurement, metric, max(abs(low), abs(high))) for subject in subjects)
    if high - low > noise and not is_slight(metric, low, high):
        return 0.0
    by_factor = METRICS[metric].panel != DIRECTION
    return max(2 * ((SLIGHT_FACTOR - 1) * high if by_factor else SLIGHT_DIFFERENCE), 10 * noise)


def _sample(index: int) -> str:
    """A piece of the model's line, as in the curves."""
    return line_key(index).html("sample")
