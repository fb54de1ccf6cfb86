"""Many correlated tests together: p as by every flip of signs, few false claims, no price for tests that are one."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from unsmooth.metrics.sign_flips import LEAST_FLIPS, MOST_FLIPS, flips, joint_p

DEPTHS, CURVES, DOUBT = 9, 120, 0.04
FIRST, SECOND = np.triu_indices(DEPTHS, 1)


def curves(rng: np.random.Generator, samples: int, memory: float) -> np.ndarray:
    """Depths × samples that do not change: depths that share nothing, or that go on from the last one."""
    found = rng.normal(size=(DEPTHS, samples))
    for depth in range(1, DEPTHS):
        found[depth] += memory * found[depth - 1]
    return found


@given(seed=st.integers(0, 999), samples=st.integers(3, 6), shift=st.floats(-5, 5))
def test_p_is_how_often_flipped_samples_have_as_large_a_t_anywhere(seed: int, samples: int, shift: float) -> None:
    table = curves(np.random.default_rng(seed), samples, 1.0)
    table[4:] += shift
    changes = table[SECOND] - table[FIRST]
    signs = np.array(list(product((1, -1), repeat=samples)))
    flipped = signs[:, None, :] * changes  # flips × tests × samples; the first is as it is
    t = np.abs(flipped.mean(-1)) / (flipped.std(-1, ddof=1) / samples**0.5)
    expected = [(t.max(1) >= own * (1 - 1e-6)).mean() for own in t[0]]
    np.testing.assert_allclose(joint_p(table, FIRST, SECOND), expected)


@pytest.mark.parametrize("samples", [6, 8])
@pytest.mark.parametrize("memory", [0.0, 1.0])
def test_of_curves_that_do_not_change_few_are_said_to(samples: int, memory: float) -> None:
    rng = np.random.default_rng(samples)
    false = sum(joint_p(curves(rng, samples, memory), FIRST, SECOND).min() < DOUBT for _ in range(CURVES))
    assert scipy.stats.binomtest(int(false), CURVES, DOUBT).pvalue > 1e-4  # neither too many nor too few


@pytest.mark.parametrize("samples", [8, 32])
def test_where_half_of_the_curve_changes_the_other_half_is_not_said_to(samples: int) -> None:
    rng = np.random.default_rng(samples)
    ramp = np.array([0, 1, 2, 3, 4, 4, 4, 4, 4])[:, None]
    flat = FIRST >= 4
    found = [joint_p(5 * ramp + curves(rng, samples, 1.0), FIRST, SECOND) for _ in range(CURVES)]
    assert np.mean([p[~flat].min() < DOUBT for p in found]) > 0.99
    assert scipy.stats.binomtest(sum(p[flat].min() < DOUBT for p in found), CURVES, DOUBT).pvalue > 1e-4


def test_tests_that_are_one_do_not_pay_for_each_other() -> None:
    table = np.concatenate([np.zeros((1, 8)), np.random.default_rng(0).normal(1.2, 1, size=(1, 8)).repeat(50, 0)])
    single = joint_p(table, np.array([0]), np.array([1]))
    assert 1 / 128 <= single[0] < DOUBT
    np.testing.assert_array_equal(joint_p(table, np.zeros(50, int), np.arange(1, 51)), single.repeat(50))


def test_no_change_at_all_and_many_samples() -> None:
    assert joint_p(np.ones((3, 7)), np.array([0, 1]), np.array([1, 2])).tolist() == [1.0, 1.0]
    assert flips(13).shape == flips(900)[:, :13].shape == (MOST_FLIPS, 13)
    assert flips(20_000).shape == (LEAST_FLIPS, 20_000)
    assert joint_p(np.arange(2.0)[:, None].repeat(900, 1), np.array([0]), np.array([1])).tolist() == [1 / MOST_FLIPS]
