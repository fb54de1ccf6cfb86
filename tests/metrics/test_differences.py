"""Differences over seeds: every interval and test against scipy, or against a computation that is obvious."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from unsmooth.metrics.differences import (
    brown_forsythe,
    compare_seeds,
    detectable_ratio,
    holm,
    paired_difference,
    permutation,
    spread,
    welch_interval,
)
from unsmooth.metrics.student import fisher_p, fisher_quantile, incomplete_beta, student_95, student_p

stats = pytest.importorskip("scipy.stats")
RECORDS = Path(__file__).parents[2] / "zoo" / "records"


@pytest.mark.parametrize("freedom", [1, 2, 2.5, 8, 47, 1e3, 1e6])
@pytest.mark.parametrize("t", [0.0, 1e-9, 0.3, 2.306, 9.0, 60.0])
def test_p_values_of_t_are_scipys(freedom: float, t: float) -> None:
    assert student_p(t, freedom) == pytest.approx(2 * stats.t.sf(t, freedom), rel=1e-9, abs=1e-300)
    assert student_p(-t, freedom) == student_p(t, freedom)
    assert student_p(student_95(freedom), freedom) == pytest.approx(0.05, rel=1e-3)


@pytest.mark.parametrize("freedom", [(1, 1), (2, 5), (8, 8), (1, 16), (40, 3)])
@pytest.mark.parametrize("share", [0.001, 0.025, 0.5, 0.8, 0.975])
def test_quantiles_of_f_are_scipys(freedom: tuple[int, int], share: float) -> None:
    expected = stats.f.ppf(share, *freedom)
    assert fisher_quantile(share, *freedom) == pytest.approx(expected, rel=1e-9)
    assert fisher_p(expected, *freedom) == pytest.approx(1 - share, rel=1e-9)


def test_the_incomplete_beta_function_is_scipys_over_its_whole_range() -> None:
    from scipy.special import betainc

    rng = np.random.default_rng(0)
    for a, b, x in zip(*10 ** rng.uniform(-1, 3, (2, 300)), rng.uniform(0, 1, 300), strict=True):
        assert incomplete_beta(x, a, b) == pytest.approx(betainc(a, b, x), rel=1e-8, abs=1e-250)


@pytest.mark.parametrize("count", [2, 3, 9, 30])
def test_paired_differences_are_scipys_paired_t_test(count: int) -> None:
    rng = np.random.default_rng(count)
    a, b = rng.normal(size=(2, count))
    found, expected = paired_difference(a, b), stats.ttest_rel(b, a)
    interval = expected.confidence_interval(0.95)
    assert found.p == pytest.approx(expected.pvalue, rel=1e-8)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-3, abs=1e-3)
    assert (found.pairs, found.ahead) == (count, int((b > a).sum()))
    assert found.error == pytest.approx(stats.sem(b - a))


def test_pairs_without_any_spread_are_certain_and_single_ones_say_nothing() -> None:
    same = paired_difference([1.0, 2.0], [1.5, 2.5])
    assert (same.low, same.high, same.p) == (0.5, 0.5, 0.0)
    assert paired_difference([1.0, 2.0], [1.0, 2.0]).p == 1.0
    alone = paired_difference([1.0], [2.0])
    assert alone.mean == 1.0
    assert math.isnan(alone.p)
    assert math.isnan(alone.low)
    assert math.isnan(paired_difference([], []).mean)


@pytest.mark.parametrize("sizes", [(2, 2), (3, 3), (9, 9), (4, 7)])
def test_brown_forsythe_is_scipys_levene_around_the_median(sizes: tuple[int, int]) -> None:
    rng = np.random.default_rng(sum(sizes))
    a, b = rng.normal(size=sizes[0]), 3 * rng.normal(size=sizes[1])
    expected = stats.levene(a, b, center="median").pvalue
    if math.isnan(expected) or sizes == (2, 2):  # both values of a pair are as far from their median: nothing is left
        assert math.isnan(brown_forsythe(a, b))
    else:
        assert brown_forsythe(a, b) == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("sizes", [(3, 3), (5, 4)])
def test_the_permutation_test_is_scipys(sizes: tuple[int, int]) -> None:
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=sizes[0]), 4 * rng.normal(size=sizes[1])
    deviations = [np.abs(x - np.median(x)) for x in (a, b)]

    def gap(x: np.ndarray, y: np.ndarray, axis: int) -> np.ndarray:
        return np.abs(x.mean(axis=axis) - y.mean(axis=axis))

    expected = stats.permutation_test(deviations, gap, vectorized=True, alternative="greater", n_resamples=np.inf)
    p, smallest = permutation(a, b)
    assert p == pytest.approx(expected.pvalue, abs=1e-12)
    assert smallest == pytest.approx((2 if sizes[0] == sizes[1] else 1) / math.comb(sum(sizes), sizes[0]))
    assert p >= smallest


def test_many_values_are_permuted_at_random_and_always_alike() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=30), 5 * rng.normal(size=30)
    assert permutation(a, b) == permutation(a, b)
    assert permutation(a, b)[0] < 0.001
    assert permutation(a, a[::-1])[0] == 1.0


def test_false_alarms_of_both_tests_of_spread_are_about_as_many_as_they_should_be() -> None:
    """Nine against nine from one distribution: no test may reject in much more than 5 % of the cases."""
    rng = np.random.default_rng(3)
    draws = rng.normal(size=(200, 2, 9))
    assert np.mean([brown_forsythe(a, b) < 0.05 for a, b in draws]) < 0.1
    assert np.mean([permutation(a, b)[0] < 0.05 for a, b in draws[:60]]) < 0.15


def test_welchs_interval_is_scipys() -> None:
    rng = np.random.default_rng(4)
    a, b = rng.normal(size=5), 3 * rng.normal(size=12)
    half, freedom = welch_interval((stats.sem(a), stats.sem(b)), (5, 12))
    expected = stats.ttest_ind(b, a, equal_var=False)
    interval = expected.confidence_interval(0.95)
    assert freedom == pytest.approx(expected.df)
    assert half == pytest.approx((interval.high - interval.low) / 2, rel=1e-3)


def test_holm_orders_and_never_falls() -> None:
    assert holm([0.01, 0.02, 0.03, 0.04]) == pytest.approx([0.04, 0.06, 0.06, 0.06])
    assert holm([0.5, 0.6]) == [1.0, 1.0]
    kept = holm([math.nan, 0.01, math.nan])
    assert kept[1] == 0.01  # what says nothing is no comparison
    assert math.isnan(kept[0])
    assert holm([]) == []


def test_a_sentence_claims_no_more_than_the_seeds_allow() -> None:
    rng = np.random.default_rng(5)
    plain = dict(enumerate(30 + rng.normal(size=9)))
    variants = {
        "worse": {s: v - 5 for s, v in plain.items()},
        "noise": {s: v + rng.normal() for s, v in plain.items()},
        "narrow": {s: 30 + 0.05 * rng.normal() for s in plain},
        "once": {0: 50.0},
        "apart": {77: 50.0},
    }
    said = {c.name: c.claim() for c in compare_seeds(plain, variants)}
    assert said["worse"].startswith("worse is below plain (-5.00 points")
    assert "Holm for 3 comparisons" in said["worse"]  # `once` and `apart` are none
    assert said["noise"].startswith("no difference of noise from plain can be claimed (")
    assert "spreads less over seeds" in said["narrow"]
    assert "spreads" not in said["noise"]
    assert "one shared seed (+" in said["once"]
    assert "no shared seed, so nothing can be claimed" in said["apart"]


def test_true_nulls_are_claimed_less_often_after_the_correction() -> None:
    rng = np.random.default_rng(6)
    alone = corrected = 0
    for _ in range(20):
        plain = dict(enumerate(rng.normal(size=5)))
        found = compare_seeds(plain, {str(k): dict(enumerate(rng.normal(size=5))) for k in range(20)})
        alone += any(c.difference.p < 0.05 for c in found)
        corrected += any(c.differs for c in found)
    assert alone >= 5  # one study in two would claim something
    assert corrected <= 3  # one in twenty may


def test_three_seeds_cannot_reach_significance_by_permutation_and_nine_can() -> None:
    assert spread([1, 2, 3], [1, 1.01, 1.02]).smallest == pytest.approx(0.1)
    nine = spread(range(9), np.arange(9) / 100)
    assert nine.smallest == pytest.approx(2 / 48_620)
    assert nine.permutation < 0.001
    assert 4 < nine.detectable < 6
    assert math.isnan(spread([1, 2, 3], [1, 2, 4]).detectable)


@pytest.mark.parametrize(("wide", "narrow"), [(9, 9), (12, 7)])
def test_the_detectable_ratio_is_found_in_four_of_five_experiments(wide: int, narrow: int) -> None:
    """By scipy's own test, on other random numbers."""
    rng = np.random.default_rng(5)
    ratio = detectable_ratio(wide, narrow)
    tests = (stats.levene(ratio * rng.normal(size=wide), rng.normal(size=narrow), center="median") for _ in range(600))
    assert np.mean([test.pvalue < 0.05 for test in tests]) == pytest.approx(0.8, abs=0.06)


def test_the_nine_seeds_of_the_zoo_say_what_was_computed_by_hand() -> None:
    """Plain and sharpening on 10 % of CIFAR-100: no gain in the mean, a smaller spread."""
    accuracy: dict[str, dict[int, float]] = {"plain": {}, "sharpening": {}}
    for variant, found in accuracy.items():
        for seed in range(9):
            record = json.loads((RECORDS / f"cifar100-10pct-{variant}-seed{seed}.json").read_text(encoding="utf-8"))
            found[seed] = 100 * record["final"]["accuracy"]
    (found,) = compare_seeds(accuracy["plain"], {"sharpening": accuracy["sharpening"]})
    assert found.difference.mean == pytest.approx(0.20, abs=0.01)
    assert found.difference.error == pytest.approx(0.26, abs=0.01)
    assert (found.difference.low, found.difference.high) == pytest.approx((-0.40, 0.80), abs=0.01)
    assert found.difference.ahead == 6
    assert found.spread.ratio == pytest.approx(3.3, abs=0.05)
    assert (found.spread.low, found.spread.high) == pytest.approx((1.6, 7.0), abs=0.06)
    assert found.spread.brown_forsythe == pytest.approx(0.017, abs=0.001)
    assert found.spreads_differently
    assert not found.differs
