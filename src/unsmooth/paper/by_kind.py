"""Mean change of a metric by kind of layer, over models: the numbers of Tables 1–3."""

from __future__ import annotations

from collections.abc import Sequence

from unsmooth.analysis import Measurement
from unsmooth.paper.records import Summary

KINDS = ("LayerNorm", "Attention", "MLP")
READINGS = ("chain", "residual")
Changes = dict[str, dict[str, Summary]]  # reading -> kind of layer -> mean over models


def summarised(measurements: Sequence[Measurement], metric: str) -> Changes:
    """Mean change of the metric by kind of layer over these models, in both readings."""
    found: Changes = {}
    for reading in READINGS:
        values = [mean_changes(m, metric, reading) for m in measurements]
        summaries = {kind: Summary.of([v[kind] for v in values if kind in v]) for kind in KINDS}
        found[reading] = {kind: s for kind, s in summaries.items() if s is not None}
    return found


def mean_changes(measurement: Measurement, metric: str, reading: str) -> dict[str, float]:
    """Mean change of the metric by kind of layer, all tokens."""
    frame = measurement.change_by_kind(reading)
    frame = frame[(frame["metric"] == metric) & (frame["tokens"] == "all")]
    return dict(zip(frame["kind"], frame["mean"].astype(float), strict=True))
