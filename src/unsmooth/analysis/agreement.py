"""Does the prediction agree with the measurement: rank correlation, confusion table, intervals. No scipy."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unsmooth.metrics.student import student_95

Array = NDArray[np.float64]


def average_ranks(values: Array) -> Array:
    """Ranks from 1, ties sharing their mean.

    >>> average_ranks(np.array([3.0, 1.0, 3.0])).tolist()
    [2.5, 1.0, 2.5]
    """
    _, where, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[where], dtype=np.float64)


def spearman(x: Array, y: Array) -> float:
    """Spearman's rank correlation; nan for fewer than two points or a constant side."""
    if len(x) < 2:
        return math.nan
    a, b = average_ranks(x), average_ranks(y)
    a, b = a - a.mean(), b - b.mean()
    scale = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / scale if scale > 0 else math.nan


def bootstrap_interval(
    statistic: Callable[[NDArray[np.int64]], float],
    *factors: Sequence[Hashable],
    draws: int = 1000,
    seed: int = 0,
) -> tuple[float, float]:
    """The 95 % percentile interval of `statistic(rows)` when the levels of every factor are drawn with replacement.

    Rows of one layer are not independent, and neither are rows of one input: with both as factors, layers and inputs
    are drawn at once and a row counts as often as both of its own were drawn (Owen's pigeonhole bootstrap). A factor
    with one level does not vary; where none does, (nan, nan).
    """
    coded = [np.unique([str(level) for level in factor], return_inverse=True) for factor in factors]
    levels = [len(names) for names, _ in coded]
    if not any(count > 1 for count in levels):
        return math.nan, math.nan
    generator = np.random.default_rng(seed)
    values = []
    for _ in range(draws):
        counts = np.ones(len(coded[0][1]), dtype=np.int64)
        for count, (_, row_levels) in zip(levels, coded, strict=True):
            drawn = np.bincount(generator.integers(count, size=count), minlength=count)
            counts *= drawn[row_levels]
        rows = np.repeat(np.arange(len(counts)), counts)
        values.append(statistic(rows) if len(rows) else math.nan)
    finite = np.array([v for v in values if not math.isnan(v)])
    if not len(finite):
        return math.nan, math.nan
    low, high = np.quantile(finite, [0.025, 0.975])
    return float(low), float(high)


def share_interval(per_input: Array, cases: int) -> tuple[float, float]:
    """A 95 % interval for the mean of a share over inputs, each the share of so many `cases` (layers × heads).

    What varies is the input: the heads of one input are not independent, so inputs are what is counted, and the
    interval is Student's. A share of c cases is known to 1/c; the variance of that rounding, 1/(12c²), is added, so
    that inputs which agree exactly leave a narrow interval and not none. One input varies with nothing: (nan, nan).

    >>> [round(end, 3) for end in share_interval(np.full(4, 5 / 36), 36)]
    [0.126, 0.152]
    """
    mean, count = float(per_input.mean()), len(per_input)
    if count < 2:
        return math.nan, math.nan
    variance = float(per_input.var(ddof=1)) + 1 / (12 * cases**2)
    half = student_95(count - 1) * math.sqrt(variance / count)
    return max(mean - half, 0.0), min(mean + half, 1.0)


@dataclass(frozen=True)
class Agreement:
    """A prediction beside a measurement over layers and inputs; "up" is growth, a positive logarithm.

    Without a row (`count` 0), shares are nan.
    """

    count: int
    both_up: int
    only_predicted_up: int
    only_measured_up: int
    both_down: int
    spearman: float
    spearman_low: float
    spearman_high: float
    lead_low: float  # the lower end of the 95 % interval of accuracy − majority
    slope: float  # least squares of measured on predicted, through their means

    @property
    def accuracy(self) -> float:
        """The share of rows with the right sign."""
        return (self.both_up + self.both_down) / self.count if self.count else math.nan

    @property
    def majority(self) -> float:
        """What always guessing the more frequent sign would score: the bar that an accuracy has to clear."""
        up = self.both_up + self.only_measured_up
        return max(up, self.count - up) / self.count if self.count else math.nan


def agreement(predicted: Array, measured: Array, *factors: Sequence[Hashable], draws: int = 1000) -> Agreement:
    """The confusion table, the rank correlation, and intervals when all factors (layers, inputs) are drawn anew."""
    up, rose = predicted > 0, measured > 0

    def lead(rows: NDArray[np.int64]) -> float:
        share = float(rose[rows].mean())
        return float((up[rows] == rose[rows]).mean()) - max(share, 1 - share)

    low, high = bootstrap_interval(lambda rows: spearman(predicted[rows], measured[rows]), *factors, draws=draws)
    centred = predicted - predicted.mean() if len(predicted) else predicted
    size = float(centred @ centred)
    return Agreement(
        count=len(predicted),
        both_up=int((up & rose).sum()),
        only_predicted_up=int((up & ~rose).sum()),
        only_measured_up=int((~up & rose).sum()),
        both_down=int((~up & ~rose).sum()),
        spearman=spearman(predicted, measured),
        spearman_low=low,
        spearman_high=high,
        lead_low=bootstrap_interval(lead, *factors, draws=draws)[0],
        slope=float(centred @ measured) / size if size > 0 else math.nan,
    )
