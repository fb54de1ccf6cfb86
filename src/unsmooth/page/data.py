"""What the page's script reads: every model's numbers in columns, and what the numbers mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from unsmooth.analysis import Measurement
from unsmooth.analysis.measurement import Cell
from unsmooth.analysis.policies import COUNT_PADDING, PADDED
from unsmooth.metrics.registry import METRICS, by_panel
from unsmooth.page.encode import number, numbers
from unsmooth.page.explained import explained
from unsmooth.page.outliers import first_policy

if TYPE_CHECKING:
    from unsmooth.analysis.subject import Subject


def page_data(subjects: Sequence[Subject]) -> dict[str, Any]:
    """Everything the script draws from."""
    measured = shared_metrics(subjects)
    policies = shared_policies(subjects)
    definitions = subjects[0].measurement.about.definitions
    return {
        "schema": "unsmooth.page/1",
        "models": [_model(subject, measured, policies) for subject in subjects],
        "tokens": policies,
        "policies": {name: definitions.tokens[name] for name in policies},
        "readings": definitions.changes,
        "metrics": {
            name: {
                "title": METRICS[name].title,
                "definition": definitions.metrics[name],
                "smoother": METRICS[name].sign,
            }
            for name in measured
        },
        "families": [{"metrics": names, "reading": panel.caption} for panel, names in by_panel(measured).items()],
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
    padded = any(note.startswith(PADDED) for subject in subjects for note in subject.measurement.notes)
    found = [name for name in asked if all(name in other for other in rest)]
    found.sort(key=lambda name: padded and name in COUNT_PADDING)
    first = first_policy([subject.measurement for subject in subjects], found) if found else ""
    return sorted(found, key=lambda name: name != first)


def _model(subject: Subject, metrics: Sequence[str], policies: Sequence[str]) -> dict[str, Any]:
    measurement = subject.measurement
    about = measurement.about.model
    points = list(dict.fromkeys(cell.point for cell in measurement.cells))
    return {
        "name": subject.name,
        "layers": about.layers,
        "placement": about.placement,
        "samples": measurement.samples,
        "points": points,
        "values": {
            policy: {metric: _column(measurement, points, metric, policy) for metric in metrics} for policy in policies
        },
        "changes": _changes(measurement, metrics, policies),
        "explain": explained(subject),
        "tokens": None if subject.tokens is None else subject.tokens.to_page(),
    }


def _column(measurement: Measurement, points: Sequence[str], metric: str, policy: str) -> dict[str, Any]:
    moments = [measurement.cells[Cell(point, metric, policy)] for point in points]
    return {"mean": numbers(m.mean for m in moments), "std": numbers((m.std for m in moments), 3)}


def _changes(measurement: Measurement, metrics: Sequence[str], policies: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for change, moments in measurement.changes.items():
        if change.metric not in metrics or change.tokens not in policies:
            continue
        low, high = moments.interval
        kinds = found.setdefault(change.reading, {}).setdefault(change.tokens, {})
        kinds.setdefault(change.kind, {})[change.metric] = {
            "mean": number(moments.mean),
            "std": number(moments.std, 3),
            "low": number(low),
            "high": number(high),
        }
    return found
