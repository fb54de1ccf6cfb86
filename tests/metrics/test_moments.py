"""Accumulators: any split of the data, over batches or processes, gives the same numbers."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import joined, run_twice
from scipy import stats

from unsmooth.metrics.moments import Moments, all_reduce

numbers = st.lists(st.floats(-1e6, 1e6), min_size=0, max_size=30)


def of(values: list[float] | np.ndarray) -> Moments:
    """The accumulator of these values."""
    moments = Moments()
    moments.update(torch.tensor(values, dtype=torch.float64))
    return moments


def assert_same(one: Moments, two: Moments) -> None:
    """Equal up to rounding."""
    assert one.count == two.count
    scale = max(abs(two.min), abs(two.max)) if two.count else 1.0
    assert one.mean == pytest.approx(two.mean, rel=1e-12, abs=1e-12 * scale, nan_ok=True)
    assert one.square == pytest.approx(two.square, rel=1e-9, abs=1e-10 * scale**2)
    assert (one.min, one.max) == (two.min, two.max)


@settings(deadline=None, max_examples=60)
@given(numbers, numbers, numbers)
def test_merging_parts_equals_the_whole_in_any_order(a: list[float], b: list[float], c: list[float]) -> None:
    whole = of(a + b + c)
    assert_same(of(a).merge(of(b)).merge(of(c)), whole)
    assert_same(of(a).merge(of(b).merge(of(c))), whole)
    assert_same(of(c).merge(of(a)).merge(of(b)), whole)


def test_mean_deviation_and_interval_are_those_of_scipy() -> None:
    values = np.random.default_rng(0).normal(3, 2, 200)
    moments = of(values)
    assert moments.mean == pytest.approx(values.mean())
    assert moments.std == pytest.approx(values.std(ddof=1))
    assert (moments.min, moments.max) == (values.min(), values.max())
    for count in (2, 5, 200):  # few samples have a wider interval than 1.96 standard errors
        expected = stats.t.interval(0.95, count - 1, values[:count].mean(), stats.sem(values[:count]))
        assert of(values[:count]).interval == pytest.approx(expected, rel=1e-6)


def test_a_small_deviation_on_a_large_mean_is_kept() -> None:
    moments = Moments()
    for part in torch.tensor([1e9, 1e9 + 1, 1e9 + 2, 1e9 + 3], dtype=torch.float64).split(1):
        moments.update(part)
    assert moments.std == pytest.approx(math.sqrt(5 / 3))


def test_no_value_and_one_value_have_no_deviation() -> None:
    assert Moments().count == 0
    assert math.isnan(Moments().mean)
    assert of([2.0]).mean == 2
    assert math.isnan(of([2.0]).std)
    assert all(math.isnan(end) for end in of([2.0]).interval)


def test_an_infinite_value_stays_visible() -> None:
    assert of([1.0, math.inf]).mean == math.inf
    assert of([1.0]).merge(of([math.inf])).mean == math.inf
    assert math.isnan(of([1.0]).merge(of([math.inf])).std)
    assert math.isnan(of([1.0]).merge(of([math.nan])).mean)
    for merged in (of([1.0]).merge(of([math.nan])), of([math.nan]).merge(of([1.0]))):
        assert math.isnan(merged.min)
        assert math.isnan(merged.max)


def test_values_with_a_graph_are_taken_without_it() -> None:
    moments = Moments()
    moments.update(torch.tensor([1.0, 2.0], requires_grad=True) * 2)
    assert moments.mean == 3


def test_a_record_survives_json() -> None:
    moments = of([1.0, 2.5, 4.0])
    assert moments.to_dict() == {"count": 3, "mean": 2.5, "square": 4.5, "min": 1.0, "max": 4.0}
    assert Moments.from_dict(json.loads(json.dumps(moments.to_dict()))) == moments
    assert Moments.from_dict(json.loads(json.dumps(Moments().to_dict()))).count == 0


def test_one_process_reduces_to_itself() -> None:
    moments = of([1.0, 2.0])
    assert moments.all_reduce() == moments
    assert all_reduce([]) == []


def _one_process(rank: int, folder: str, values: list[list[float]]) -> None:
    with joined(rank, folder):
        merged = all_reduce([of(values[rank]), of([float(rank)]), of([]) if rank else of([5.0])])
        Path(folder, f"{rank}.json").write_text(json.dumps([m.to_dict() for m in merged]))


def test_two_processes_see_what_one_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    values = [[1.0, 2.0, 3.5], [7.0, -1.0]]
    run_twice(_one_process, str(tmp_path), values)
    got = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert got[0] == got[1]
    merged = [Moments.from_dict(state) for state in got[0]]
    for one, expected in zip(merged, ([1.0, 2.0, 3.5, 7.0, -1.0], [0.0, 1.0], [5.0]), strict=True):
        assert_same(one, of(expected))
