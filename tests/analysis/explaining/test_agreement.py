from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.analysis import ranks_with_ties
from scipy import stats

from unsmooth.analysis.explaining.agreement import (
    agreement,
    average_ranks,
    bootstrap_interval,
    share_interval,
    spearman,
)
from unsmooth.figures.prediction import agreement_note

small = st.lists(st.integers(-4, 4).map(float), min_size=3, max_size=30)


@settings(max_examples=50, deadline=None)
@given(small)
def test_ranks_with_ties_equal_counting(values: list[float]) -> None:
    assert average_ranks(np.array(values)).tolist() == ranks_with_ties(values)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(3, 40))
def test_spearman_equals_scipy(seed: int, count: int) -> None:
    generator = np.random.default_rng(seed)
    x, y = generator.integers(0, 9, count).astype(float), generator.normal(size=count)
    if np.ptp(x) > 0:
        assert spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 12))
def test_rows_that_count_several_times_rank_as_if_they_were_repeated(seed: int, count: int) -> None:
    generator = np.random.default_rng(seed)
    counts = generator.integers(0, 4, (3, count)).astype(float)
    x = generator.integers(0, 5, count).astype(float)
    for drawn, ranks in zip(counts, average_ranks(x, counts), strict=True):
        rows = np.repeat(np.arange(count), drawn.astype(int))
        assert np.repeat(ranks, drawn.astype(int)).tolist() == ranks_with_ties(x[rows].tolist())


def test_spearman_is_undefined_for_a_constant_or_a_single_point() -> None:
    assert math.isnan(spearman(np.ones(4), np.arange(4.0)))
    assert math.isnan(spearman(np.ones(1), np.ones(1)))
    assert spearman(np.array([1.0, 2.0]), np.array([5.0, 3.0])) == -1


def test_the_slope_is_that_of_least_squares() -> None:
    x, y = np.random.default_rng(0).normal(size=(2, 9)) + 3
    assert agreement(x, y, range(9), draws=5).slope == pytest.approx(np.polyfit(x, y, 1)[0])
    assert math.isnan(agreement(np.ones(4), np.arange(4.0), range(4), draws=5).slope)


def test_two_steps_are_in_no_order() -> None:
    """Two points have a rank correlation of 1 or −1 whatever they are, and draws of them an interval of [1, 1]."""
    found = agreement(np.array([1.0, 2.0]), np.array([3.0, 5.0]), range(2), draws=50)
    assert all(math.isnan(value) for value in (found.spearman, found.spearman_low, found.spearman_high))
    note = agreement_note(found)
    assert note == "Same sign in 100\xa0% of 2 steps (always guessing the more frequent sign: 100\xa0%)."


def test_confusion_counts_and_bar() -> None:
    found = agreement(np.array([1.0, 1, -1, -1, -1]), np.array([2.0, -1, 1, -1, -3]), list("abcde"), draws=50)
    assert (found.both_up, found.only_predicted_up, found.only_measured_up, found.both_down) == (1, 1, 1, 2)
    assert found.accuracy == found.majority == 0.6
    assert found.spearman_low <= found.spearman <= found.spearman_high


def test_bootstrap_draws_whole_groups() -> None:
    groups = ["a"] * 50 + ["b"] * 50
    values = np.array([0.0] * 50 + [1.0] * 50)
    low, high = bootstrap_interval(lambda counts: counts @ values / counts.sum(1), groups, draws=200)
    assert (low, high) == (0.0, 1.0)  # rows drawn one by one would give about 0.4 to 0.6


def test_an_interval_over_layers_and_inputs_is_as_wide_as_the_layers_make_it() -> None:
    """12 layers × 8 inputs that agree: the inputs alone would give a width of almost nothing."""
    generator = np.random.default_rng(3)
    layer = np.repeat(np.arange(12), 8)
    inputs = np.tile(np.arange(8), 12)
    x, y = generator.normal(size=(2, 12))
    predicted, measured = x[layer], y[layer] + 0.01 * generator.normal(size=96)
    narrow = agreement(predicted, measured, inputs.tolist(), draws=300)
    wide = agreement(predicted, measured, layer.tolist(), inputs.tolist(), draws=300)
    by_layer = agreement(x, y, range(12), draws=300)
    assert narrow.spearman_high - narrow.spearman_low < 0.05
    assert wide.spearman_high - wide.spearman_low > 0.5
    assert wide.spearman_high - wide.spearman_low == pytest.approx(
        by_layer.spearman_high - by_layer.spearman_low, rel=0.4
    )
    assert agreement(predicted, measured, inputs.tolist(), layer.tolist(), draws=20).count == 96


def test_a_factor_with_one_level_does_not_vary() -> None:
    values = np.array([0.0, 1.0, 2.0])
    one, both = (
        bootstrap_interval(lambda counts: counts @ values / counts.sum(1), *factors, draws=99)
        for factors in ((["a", "b", "c"],), (["a", "b", "c"], [0, 0, 0]))
    )
    assert both[0] < 0.7 < 1.3 < both[1]
    assert both == pytest.approx(one, abs=0.5)
    assert all(math.isnan(v) for v in bootstrap_interval(lambda counts: counts[:, 0], ["a"], draws=5))


def test_bootstrap_is_reproducible() -> None:
    values = np.random.default_rng(1).normal(size=20)
    runs = [bootstrap_interval(lambda counts: counts @ values / counts.sum(1), range(20), draws=99) for _ in range(2)]
    assert runs[0] == runs[1]


def test_inputs_that_agree_leave_a_narrow_interval() -> None:
    widths = []
    for count, cases in ((4, 36), (16, 36), (4, 144)):
        low, high = share_interval(np.full(count, 5 / 36), cases)
        assert low < 5 / 36 < high
        assert high - low < 4 / cases
        widths.append(high - low)
    assert widths[0] > max(widths[1:])  # more inputs, or shares of more cases, say more
    assert share_interval(np.ones(8), 36)[1] == 1.0
    assert 0.99 < share_interval(np.ones(8), 36)[0] < 1.0


def test_the_interval_of_a_share_is_students_over_inputs() -> None:
    values = np.array([0.4, 0.6, 0.5, 0.5])
    expected = stats.t.interval(0.95, 3, values.mean(), stats.sem(values))
    assert share_interval(values, 10**6) == pytest.approx(expected, rel=1e-6)
    assert all(math.isnan(end) for end in share_interval(values[:1], 10))  # one input varies with nothing
