"""What the page's script reads, to say more about what is drawn: every model's numbers in columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from unsmooth.analysis import Explanation, Measurement
from unsmooth.analysis.measuring.cells import Cell
from unsmooth.analysis.measuring.changes import BLOCK_STEPS, READINGS
from unsmooth.analysis.measuring.outliers import WITHOUT, carried, is_padded
from unsmooth.analysis.policies import COUNT_PADDING
from unsmooth.analysis.subject import Subject
from unsmooth.figures.by_head import head_tables
from unsmooth.figures.palette import DIVERGING
from unsmooth.figures.prediction import SERIES, rates_by_layer, rows_of
from unsmooth.metrics.registry import by_panel, metric_named
from unsmooth.page.encode import numbers
from unsmooth.page.words.attribution import who_data


def page_data(subjects: Sequence[Subject]) -> dict[str, Any]:
    """Everything that hovering tells, and the colours of the playground."""
    measured, policies = shared_metrics(subjects), shared_policies(subjects)
    return {
        "schema": "unsmooth.page/2",
        "models": [_model(subject, measured, policies) for subject in subjects],
        "metrics": {name: metric_named(name).title for name in measured},
        "series": {series.name: series.title for series in SERIES},
        "diverging": DIVERGING,
    }


def shared_metrics(subjects: Sequence[Subject]) -> list[str]:
    """The metrics that every model was measured by, in the page's order."""
    first, *rest = (subject.measurement.about.settings.metrics for subject in subjects)
    shared = [name for name in first if all(name in other for other in rest)]
    return [name for names in by_panel(shared).values() for name in names]


def shared_policies(subjects: Sequence[Subject]) -> list[str]:
    """The token policies that every model was measured by; the first heads the page.

    That is one without padding, and where outliers carry a metric of a model, the one without them.
    """
    asked, *rest = (subject.measurement.about.settings.tokens for subject in subjects)
    padded = any(is_padded(subject.measurement) for subject in subjects)
    found = [name for name in asked if all(name in other for other in rest)]
    found.sort(key=lambda name: padded and name in COUNT_PADDING)
    if WITHOUT in found and any(carried(subject.measurement, found[0]) for subject in subjects):
        found.sort(key=lambda name: name != WITHOUT)
    return found


def headed(subjects: Sequence[Subject]) -> list[Subject]:
    """Each explained by the steps of the tokens that head the page, which its words and figures then tell of."""
    tokens = shared_policies(subjects)[0]
    return [_under(subject, tokens) for subject in subjects]


def _under(subject: Subject, tokens: str) -> Subject:
    explanation = subject.explanation
    if explanation is None or tokens not in explanation.policies[1:]:
        return subject
    return replace(subject, explanation=explanation.under(tokens))


def _model(subject: Subject, metrics: Sequence[str], policies: Sequence[str]) -> dict[str, Any]:
    measurement = subject.measurement
    about = measurement.about.model
    points = list(dict.fromkeys(cell.point for cell in measurement.cells))
    return {
        "name": subject.name,
        "layers": about.layers,
        "points": points,
        "values": {
            policy: {metric: _column(measurement, points, metric, policy) for metric in metrics} for policy in policies
        },
        "steps": {reading: BLOCK_STEPS[reading, about.placement] for reading in READINGS},
        "explain": None if subject.explanation is None else _explained(subject.explanation),
        "parts": who_data(subject.attribution),
        "distance": _distance(subject),
    }


def _column(measurement: Measurement, points: Sequence[str], metric: str, policy: str) -> dict[str, Any]:
    moments = [measurement.cells[Cell(point, metric, policy)] for point in points]
    return {"mean": numbers(m.mean for m in moments), "std": numbers((m.std for m in moments), 3)}


def _explained(explanation: Explanation) -> dict[str, Any]:
    frame = explanation.frame()
    rows = rows_of(frame)
    places = {name: [int(v) for v in rows.pop(name)] for name in ("layer", "input")}
    return {
        "layers": sorted({int(layer) for layer in frame["layer"]}),
        "exponents": {name: numbers(mean, 4) for name, (mean, _) in rates_by_layer(frame).items()},
        "rows": places | {name: numbers(values, 4) for name, values in rows.items()},
        "heads": {view: [numbers(row, 4) for row in table] for view, table in head_tables(explanation).items()},
    }


def _distance(subject: Subject) -> list[list[float | None]] | None:
    """Of tokens that are words, which say it when they are pointed at; patches are too small for that."""
    view = subject.tokens
    return None if view is None or view.grid else [numbers(row, 3) for row in view.distance.tolist()]
