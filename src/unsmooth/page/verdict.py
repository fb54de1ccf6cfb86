"""Whether a model smooths or sharpens its features from its first layer to its last, and how clear that is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from unsmooth.analysis import Measurement
from unsmooth.analysis.changes import KINDS, TOGETHER
from unsmooth.analysis.measurement import Cell, Change
from unsmooth.metrics.moments import Moments
from unsmooth.metrics.registry import METRICS, by_panel
from unsmooth.page.data import shared_metrics

if TYPE_CHECKING:
    from unsmooth.analysis.subject import Subject


def leading_metrics(subjects: Sequence[Subject]) -> list[str]:
    """The first measured metric of each panel: HFC/LFC, cosine similarity, effective rank by default."""
    return [names[0] for names in by_panel(shared_metrics(subjects)).values()]


def ends(measurement: Measurement, metric: str, policy: str) -> tuple[Moments, Moments]:
    """The residual stream before the first and after the last layer."""
    first, last = end_cells(measurement, metric, policy)
    return measurement.cells[first], measurement.cells[last]


def end_cells(measurement: Measurement, metric: str, policy: str) -> tuple[Cell, Cell]:
    """Where these two are measured."""
    points = [cell.point for cell in measurement.cells if cell.metric == metric and cell.tokens == policy]
    first = next((p for p in ("blocks.0.pre", "embed") if p in points), points[0])
    last = f"blocks.{measurement.about.model.layers - 1}.post"
    return Cell(first, metric, policy), Cell(last if last in points else points[-1], metric, policy)


def vote(measurement: Measurement, metric: str, policy: str) -> int:
    """+1 smoother at the end than at the start, −1 sharper, 0 where the 95 % interval of the change holds 0.

    One sample has no interval: its sign is taken as it is, and the page says that there was one sample.
    """
    change, half = _change(measurement, metric, policy)
    return 0 if not abs(change) > half else int(math.copysign(1, change)) * METRICS[metric].sign


def _change(measurement: Measurement, metric: str, policy: str) -> tuple[float, float]:
    """From the first layer to the last, with half of its interval: sample by sample where samples were kept.

    Else per layer: the change of a sample is the sum of what attention and MLP change, so the half-widths of the two
    intervals, added, bound the half-width for the sum whatever their correlation is; a parallel block has one change.
    """
    if measurement.per_sample is not None:
        first, last = end_cells(measurement, metric, policy)
        moments = difference(measurement.per_sample[last], measurement.per_sample[first])
        return moments.mean, _half(moments)
    changes = {kind: measurement.changes.get(Change("residual", kind, metric, policy)) for kind in KINDS}
    known = [change for change in changes.values() if change is not None]
    if len(known) == 2 or changes[TOGETHER] is not None:
        return sum(part.mean for part in known), sum(_half(part) for part in known)
    start, end = ends(measurement, metric, policy)
    return end.mean - start.mean, _half(start) + _half(end)


def verdict(measurement: Measurement, metrics: Sequence[str], policy: str) -> str:
    """`smooths`, `sharpens`, `mixed` (the metrics disagree) or `steady` (fewer than half of them change clearly)."""
    votes = [found for metric in metrics if (found := vote(measurement, metric, policy))]
    if len(set(votes)) == 2:
        return "mixed"
    if not votes or 2 * len(votes) < len(metrics):
        return "steady"
    return "smooths" if votes[0] > 0 else "sharpens"


def difference(a: NDArray[np.float64], b: NDArray[np.float64]) -> Moments:
    """Of a − b, sample by sample, where that is a number."""
    with np.errstate(invalid="ignore"):  # inf − inf
        values = a - b
    found = Moments()
    found.update(torch.from_numpy(values[np.isfinite(values)]))
    return found


def _half(moments: Moments) -> float:
    return moments.half_width if math.isfinite(moments.half_width) else 0.0
