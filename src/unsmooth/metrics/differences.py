"""What can be claimed about a difference: paired t-intervals, tests for equal spread, Holm's correction, a sentence.

Everything that compares runs over seeds, or two measurements, takes its numbers from here. Intervals are 95 % intervals
and p-values two-sided; nan where there are too few values to say anything.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from unsmooth.metrics.student import fisher_p, fisher_quantile, student_95, student_p

Values = npt.NDArray[np.float64]
Seed = TypeVar("Seed", bound=Hashable)  # what pairs two runs: a seed, or a draw of the data and a seed
LEVEL = 0.05
MOST_SPLITS = 200_000  # all C(18, 9) = 48,620 of two times nine seeds are tried; beyond this, as many at random


@dataclass(frozen=True)
class Difference:
    """The mean of `b − a` with its 95 % interval; `ahead` of `pairs` are above zero."""

    mean: float
    std: float  # of the single differences, n − 1
    low: float
    high: float
    p: float
    pairs: int
    ahead: int

    def text(self, digits: int = 2) -> str:
        """The mean with its interval.

        >>> Difference(0.2, 0.1, -0.05, 0.45, 0.07, 3, 3).text()
        '+0.20 (-0.05 to +0.45)'
        """
        return with_interval(self.mean, self.low, self.high, digits)

    @property
    def error(self) -> float:
        """The standard error of the mean difference."""
        return self.std / math.sqrt(self.pairs) if self.pairs else math.nan


def with_interval(value: float, low: float, high: float, digits: int = 2) -> str:
    """A difference or a slope with its interval, without one where it is not known, and nothing where nothing is."""
    if math.isnan(low):
        return "" if math.isnan(value) else f"{value:+.{digits}f}"
    return f"{value:+.{digits}f} ({low:+.{digits}f} to {high:+.{digits}f})"


def paired_difference(a: Sequence[float] | Values, b: Sequence[float] | Values) -> Difference:
    """Student's interval and test for the mean of `b − a`, pair by pair.

    >>> found = paired_difference([1.0, 2.0, 3.0], [1.1, 2.2, 3.3])
    >>> round(found.mean, 3), round(found.high, 3)  # t of two degrees of freedom, 4.303, times 0.1 / √3
    (0.2, 0.448)
    """
    gaps = np.asarray(b, dtype=np.float64) - np.asarray(a, dtype=np.float64)
    count, ahead = len(gaps), int((gaps > 0).sum())
    mean = float(gaps.mean()) if count else math.nan
    if count < 2:
        return Difference(mean, math.nan, math.nan, math.nan, math.nan, count, ahead)
    std = float(gaps.std(ddof=1))
    error = std / math.sqrt(count)
    half = student_95(count - 1) * error
    p = student_p(mean / error, count - 1) if error > 0 else float(mean == 0)
    return Difference(mean, std, mean - half, mean + half, p, count, ahead)


@dataclass(frozen=True)
class Spread:
    """How much more `a` spreads than `b`: the ratio of standard deviations with the F interval, and two tests.

    The interval takes values as normal. Brown and Forsythe's test (deviations from the median) does not need that;
    the permutation test assumes nothing but that labels could be exchanged, and can never give less than `smallest`.
    """

    ratio: float
    low: float
    high: float
    brown_forsythe: float
    permutation: float
    smallest: float
    detectable: float  # the ratio that Brown and Forsythe's test finds in four of five experiments


def spread(a: Sequence[float] | Values, b: Sequence[float] | Values) -> Spread:
    """Compare the spread of two groups.

    >>> found = spread([1.0, 2.0, 3.0, 4.0], [1.0, 1.1, 1.2, 1.3])
    >>> round(found.ratio, 3), round(found.smallest, 3)
    (10.0, 0.029)
    """
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if min(len(first), len(second)) < 2:
        return Spread(*[math.nan] * 7)
    freedom = len(first) - 1, len(second) - 1
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = float(first.std(ddof=1) / second.std(ddof=1))
    low = ratio / math.sqrt(fisher_quantile(0.975, *freedom))
    high = ratio / math.sqrt(fisher_quantile(0.025, *freedom))
    p, smallest = permutation(first, second)
    detectable = detectable_ratio(len(first), len(second))
    return Spread(ratio, low, high, brown_forsythe(first, second), p, smallest, detectable)


@lru_cache(maxsize=256)
def detectable_ratio(wide: int, narrow: int) -> float:
    """The ratio of standard deviations that Brown and Forsythe's test finds in four of five experiments with so many
    normal values; nan where no ratio is found as often.

    >>> round(detectable_ratio(9, 9)), detectable_ratio(2, 2)
    (5, nan)
    """
    rng, freedom = np.random.default_rng(0), wide + narrow - 2
    first, second = (
        np.abs(x - np.median(x, 1)[:, None]) for x in (rng.normal(size=(4_000, n)) for n in (wide, narrow))
    )
    needed = fisher_quantile(1 - LEVEL, 1, freedom)

    def power(ratio: float) -> float:
        gaps = ratio * first.mean(1) - second.mean(1)
        within = wide * ratio**2 * first.var(1) + narrow * second.var(1)
        return float((gaps**2 * wide * narrow / (wide + narrow) * freedom > needed * within).mean())

    low, high = 0.0, math.log(1e4)
    if min(wide, narrow) < 3 or power(math.exp(high)) < 0.8:
        return math.nan
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (low, middle) if power(math.exp(middle)) >= 0.8 else (middle, high)
    return math.exp(high)


def brown_forsythe(a: Values, b: Values) -> float:
    """p of Brown and Forsythe's test: an F test on the absolute deviations from each group's median."""
    groups = [np.abs(x - np.median(x)) for x in (a, b)]
    count = sum(map(len, groups))
    grand = sum(float(g.sum()) for g in groups) / count
    between = sum(len(g) * (float(g.mean()) - grand) ** 2 for g in groups)
    within = sum(float(np.square(g - g.mean()).sum()) for g in groups)
    # both values of a pair lie as far from their median, up to rounding: such groups say nothing about spread
    if not within > 1e-24 * sum(float(np.square(g).sum()) for g in groups):
        return math.nan
    return fisher_p(between * (count - 2) / within, 1, count - 2)


def permutation(a: Values, b: Values) -> tuple[float, float]:
    """p of exchanging the labels of deviations from the medians, and the smallest p that so many values can give."""
    pooled = np.concatenate([np.abs(x - np.median(x)) for x in (a, b)])
    total, count, taken = float(pooled.sum()), len(pooled), len(a)
    if math.comb(count, taken) <= MOST_SPLITS:
        chosen = np.array(list(combinations(range(count), taken)))
    else:
        rng = np.random.default_rng(0)
        drawn = rng.permuted(np.tile(np.arange(count), (20_000, 1)), axis=1)[:, :taken]
        chosen = np.concatenate([np.arange(taken)[None], drawn])  # the labels as they are count too
    sums = pooled[chosen].sum(axis=1)
    gaps = np.abs(sums / taken - (total - sums) / (count - taken))
    observed = abs(float(pooled[:taken].mean() - pooled[taken:].mean()))
    p = float((gaps >= observed * (1 - 1e-12)).mean())
    # with groups of one size every split has its mirror image
    return p, (2 if len(a) == len(b) else 1) / len(chosen)


def welch_interval(errors: tuple[float, float], counts: tuple[int, int]) -> tuple[float, float]:
    """Half of Welch's 95 % interval for the difference of two means, and its degrees of freedom, from standard errors.

    >>> round(welch_interval((0.5, 0.5), (2, 2))[0], 3)  # t of two degrees of freedom, 4.303, times √(0.25 + 0.25)
    3.042
    """
    first, second = (error**2 for error in errors)
    total = first + second
    if not total > 0:
        return total, math.nan  # no spread at all, or none that is known
    freedom = total**2 / (first**2 / (counts[0] - 1) + second**2 / (counts[1] - 1))  # Welch and Satterthwaite
    return student_95(round(freedom, 3)) * math.sqrt(total), freedom


def holm(p: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values: compared with 5 %, they keep the chance of any false claim below 5 %. nan stays nan.

    >>> [round(value, 3) for value in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    known = [i for i, value in enumerate(p) if not math.isnan(value)]
    adjusted, worst = list(p), 0.0
    for rank, index in enumerate(sorted(known, key=p.__getitem__)):
        worst = max(worst, min(1.0, p[index] * (len(known) - rank)))
        adjusted[index] = worst
    return adjusted


@dataclass(frozen=True)
class Comparison:
    """One variant against the baseline over shared seeds."""

    name: str
    baseline: str
    difference: Difference
    spread: Spread  # of the baseline against the variant: above 1, the variant spreads less
    p_holm: float
    p_spread_holm: float
    family: int  # how many variants were compared with the baseline

    @property
    def differs(self) -> bool:
        """Whether the mean difference survives the correction."""
        return self.p_holm < LEVEL

    @property
    def spreads_differently(self) -> bool:
        """Whether both tests of spread reject, the one with the correction."""
        return self.p_spread_holm < LEVEL and self.spread.permutation < LEVEL

    def claim(self, unit: str = "points", about_spread: bool = True) -> str:
        """One sentence with what these seeds allow one to say."""
        d = self.difference
        if d.pairs < 2:
            seeds = "one shared seed" if d.pairs else "no shared seed"
            gap = f" ({d.mean:+.2f} {unit})" if d.pairs else ""
            return f"{self.name} against {self.baseline}: {seeds}{gap}, so nothing can be claimed over seeds"
        interval = f"{d.mean:+.2f} {unit}, 95 % {d.low:+.2f} to {d.high:+.2f}, n = {d.pairs}"
        corrected = f", Holm for {self.family} comparisons" if self.family > 1 else ""
        if self.differs:
            side = "above" if d.mean > 0 else "below"
            said = f"{self.name} is {side} {self.baseline} ({interval}; p {p_text(self.p_holm, '= ')}{corrected})"
        else:
            said = f"no difference of {self.name} from {self.baseline} can be claimed ({interval})"
        return said + (self._spread_claim() if about_spread else "")

    def _spread_claim(self) -> str:
        s = self.spread
        if not self.spreads_differently:
            return ""
        which, ratio = ("less", s.ratio) if s.ratio > 1 else ("more", 1 / s.ratio)
        ends = sorted((s.low, s.high) if s.ratio > 1 else (1 / s.high, 1 / s.low))
        corrected = " after Holm’s correction" if self.p_spread_holm != s.brown_forsythe else ""
        return (
            f"; it spreads {which} over seeds (standard deviations {ratio:.1f} : 1, 95 % {ends[0]:.1f} to "
            f"{ends[1]:.1f}; Brown–Forsythe p {p_text(self.p_spread_holm, '= ')}{corrected}, "
            f"permutation p {p_text(s.permutation, '= ')})"
        )


def compare_seeds(
    baseline: Mapping[Seed, float], variants: Mapping[str, Mapping[Seed, float]], name: str = "plain"
) -> list[Comparison]:
    """Each variant against the baseline on the seeds that both have, corrected for how many variants there are.

    >>> plain = {0: 1.0, 1: 2.0, 2: 3.0}
    >>> compare_seeds(plain, {"b": {0: 1.1, 1: 2.2, 2: 3.3}})[0].claim("%")
    'no difference of b from plain can be claimed (+0.20 %, 95 % -0.05 to +0.45, n = 3)'
    """
    shared = {variant: [s for s in baseline if s in seeds] for variant, seeds in variants.items()}
    differences = {
        variant: paired_difference([baseline[s] for s in shared[variant]], [seeds[s] for s in shared[variant]])
        for variant, seeds in variants.items()
    }
    spreads = {variant: spread([*baseline.values()], [*seeds.values()]) for variant, seeds in variants.items()}
    return one_family(
        Comparison(variant, name, differences[variant], spreads[variant], math.nan, math.nan, 0) for variant in variants
    )


def one_family(comparisons: Iterable[Comparison]) -> list[Comparison]:
    """The same comparisons, corrected for how many they are together; their baselines may differ."""
    found = list(comparisons)
    means = holm([c.difference.p for c in found])
    # three seeds each can never reject by permutation: they are no tests, and none that others must pay for
    widths = holm([c.spread.brown_forsythe if c.spread.smallest < LEVEL else math.nan for c in found])
    family = sum(not math.isnan(p) for p in means)
    return [replace(c, p_holm=p, p_spread_holm=q, family=family) for c, p, q in zip(found, means, widths, strict=True)]


def p_text(value: float, equals: str = "") -> str:
    """A p-value in text; nothing where there is none.

    >>> p_text(0.0004), p_text(0.0171), p_text(0.0171, "= "), p_text(math.nan)
    ('< 0.001', '0.017', '= 0.017', '')
    """
    if math.isnan(value):
        return ""
    return "< 0.001" if value < 0.001 else f"{equals}{value:.3f}" if value < 0.1 else f"{equals}{value:.2f}"
