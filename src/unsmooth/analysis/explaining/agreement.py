"""Does the prediction agree with the measurement: rank correlation, confusion table, intervals. No scipy."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from unsmooth.metrics.student import student_95

Array = NDArray[np.floating]
LEAST_ORDER = 3  # rows: two are in one order or the other, whatever they are
AT_ONCE = 1 << 20  # counts of draws × rows that are held together


def average_ranks(values: Array, counts: Array | None = None) -> Array:
    """Ranks from 1, ties sharing their mean; with `counts` (draw, row), where each row stands so many times.

    >>> average_ranks(np.array([3.0, 1.0, 3.0])).tolist()
    [2.5, 1.0, 2.5]
    >>> average_ranks(np.array([3.0, 1.0]), np.array([[1.0, 2.0]])).tolist()
    [[3.0, 1.5]]
    """
    _, first, where = np.unique(np.sort(values), return_index=True, return_inverse=True)
    order = np.argsort(values, kind="stable")
    times = np.ones((1, len(values))) if counts is None else counts.astype(np.float64)
    tied = np.add.reduceat(times[:, order], first, axis=1) if len(values) else times
    ranks = np.empty_like(times, dtype=np.float64)
    ranks[:, order] = (np.cumsum(tied, 1) - (tied - 1) / 2)[:, where]
    return ranks[0] if counts is None else ranks


def spearman(x: Array, y: Array) -> float:
    """Spearman's rank correlation; nan for fewer than two points or a constant side."""
    return float(_spearmans(x, y, np.ones((1, len(x))))[0])


def _spearmans(x: Array, y: Array, counts: Array) -> Array:
    """One rank correlation a draw: sorted once, whatever the number of draws."""
    if len(x) < 2:
        return np.full(len(counts), math.nan)
    weights = counts / counts.sum(1, keepdims=True, dtype=np.float64)
    a, b = (average_ranks(side, counts) for side in (x, y))
    a, b = (side - (weights * side).sum(1, keepdims=True) for side in (a, b))
    scale = np.sqrt((weights * a * a).sum(1) * (weights * b * b).sum(1))
    constant = scale <= 1e-12 * len(x) ** 2  # of ranks, which rounding does not make equal
    return np.where(constant, math.nan, (weights * a * b).sum(1) / np.where(constant, 1.0, scale))


@lru_cache(maxsize=4)  # every prediction of a model is asked about the same layers and inputs
def _draws(coded: tuple[tuple[int, ...], ...], draws: int) -> list[Array]:
    """How often each row counts in each draw, (draw, row), some draws at a time."""
    generator = np.random.default_rng(0)
    rows = len(coded[0])
    found = []
    levels = [(1 + max(codes), np.array(codes)) for codes in coded]
    at_once = max(1, AT_ONCE // rows)
    for start in range(0, draws, at_once):
        counts = np.ones((min(at_once, draws - start), rows), dtype=np.float32)
        for row in counts:
            for count, codes in levels:
                row *= np.bincount(generator.integers(count, size=count), minlength=count)[codes]
        found.append(counts)
    return found


def bootstrap_interval(
    statistic: Callable[[Array], Array],
    *factors: Sequence[Hashable],
    draws: int = 1000,
) -> tuple[float, float]:
    """The 95 % percentile interval of a statistic when the levels of every factor are drawn with replacement.

    Rows of one layer are not independent, and neither are rows of one input: with both as factors, layers and inputs
    are drawn at once and a row counts as often as both of its own were drawn (Owen's pigeonhole bootstrap). The
    statistic gets these counts, (draw, row), and gives one number a draw. A factor with one level does not vary; where
    none does, (nan, nan).
    """
    coded = [np.unique([str(level) for level in factor], return_inverse=True)[1] for factor in factors]
    if not any(codes.any() for codes in coded):
        return math.nan, math.nan
    drawn = _draws(tuple(tuple(codes.tolist()) for codes in coded), draws)
    values = [statistic(counts[counts.any(1)]) for counts in drawn]
    finite = np.concatenate(values)
    finite = finite[~np.isnan(finite)]
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

    def lead(counts: Array) -> Array:
        size = counts.sum(1, dtype=np.float64)
        share = counts @ rose.astype(np.float64) / size
        return np.asarray(counts @ (up == rose).astype(np.float64) / size - np.maximum(share, 1 - share))

    order = low = high = math.nan
    if len(predicted) >= LEAST_ORDER:
        order = spearman(predicted, measured)
        low, high = bootstrap_interval(lambda counts: _spearmans(predicted, measured, counts), *factors, draws=draws)
    centred = predicted - predicted.mean() if len(predicted) else predicted
    size = float(centred @ centred)
    return Agreement(
        count=len(predicted),
        both_up=int((up & rose).sum()),
        only_predicted_up=int((up & ~rose).sum()),
        only_measured_up=int((~up & rose).sum()),
        both_down=int((~up & ~rose).sum()),
        spearman=order,
        spearman_low=low,
        spearman_high=high,
        lead_low=bootstrap_interval(lead, *factors, draws=draws)[0],
        slope=float(centred @ measured) / size if size > 0 else math.nan,
    )
