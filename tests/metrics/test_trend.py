"""The line through all values, beside scipy's and where there is none."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from unsmooth.metrics.trend import trend


@given(seed=st.integers(0, 10_000), count=st.integers(3, 30))
def test_slope_interval_and_p_are_scipys(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=count), rng.normal(size=count)
    found, theirs = trend(x.tolist(), y.tolist()), stats.linregress(x, y)
    half = stats.t.ppf(0.975, count - 2) * theirs.stderr
    assert found.slope == pytest.approx(theirs.slope, rel=1e-9, abs=1e-12)
    assert (found.high - found.low) / 2 == pytest.approx(half, rel=1e-5)
    assert found.p == pytest.approx(theirs.pvalue, rel=1e-6, abs=1e-12)
    assert found.values == count


def test_two_values_have_a_slope_and_no_interval() -> None:
    found = trend([0.0, 2.0], [1.0, 2.0])
    assert found.slope == 0.5
    assert math.isnan(found.low)
    assert math.isnan(found.p)
    assert found.text() == "+0.50"


def test_values_at_one_x_have_no_slope() -> None:
    assert math.isnan(trend([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]).slope)


def test_values_on_a_line_leave_no_doubt() -> None:
    assert trend([0.0, 1.0, 2.0], [0.0, 1.0, 2.0]).p == 0.0
    assert trend([0.0, 1.0, 2.0], [1.0, 1.0, 1.0]).p == 1.0
