"""Comparisons: paired where both measured the same inputs, Welch's elsewhere, and it is said which."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from small_models import images, vit

import unsmooth
from unsmooth.analysis.measuring import pairing
from unsmooth.analysis.measuring.comparison import paired, welch
from unsmooth.analysis.measuring.pairing import match, pair
from unsmooth.errors import UnsmoothError
from unsmooth.metrics.moments import Moments

numbers = st.floats(-1e3, 1e3).map(lambda x: round(x, 3))


@pytest.fixture(scope="module")
def both() -> tuple[unsmooth.Measurement, unsmooth.Measurement]:
    """One model before and after a small change, on the same images."""
    torch.manual_seed(0)
    model, data = vit(), images(6)
    before = unsmooth.measure(model, data)
    with torch.no_grad():
        model.blocks[1].mlp.fc2.bias.add_(0.1)
    return before, unsmooth.measure(model, data)


def row(frame: Any, point: str, metric: str = "hfc_lfc") -> Any:
    (found,) = frame[(frame.point == point) & (frame.metric == metric)].itertuples()
    return found


@pytest.mark.parametrize("count", [2, 5, 300])
def test_the_paired_interval_is_scipys(count: int) -> None:
    generator = np.random.default_rng(count)
    a = generator.normal(3, 2, count)
    b = a + generator.normal(0.1, 0.3, count)
    test = stats.ttest_rel(b, a)
    expected, found = test.confidence_interval(0.95), paired(a, b)
    assert (found["low"], found["high"]) == pytest.approx((expected.low, expected.high), rel=1e-6)
    assert found["differs"] == (test.pvalue < 0.05)
    assert (found["a"], found["b"], found["pairs"]) == (pytest.approx(a.mean()), pytest.approx(b.mean()), count)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(numbers, numbers), min_size=2, max_size=30), numbers)
def test_what_both_sides_share_changes_nothing_and_exchange_turns_the_sign(
    values: list[tuple[float, float]], shift: float
) -> None:
    a, b = np.array(values).T
    found = paired(a, b)
    shared = np.linspace(-shift, shift, len(a))
    for key in ("difference", "low", "high"):
        assert paired(a + shared, b + shared)[key] == pytest.approx(found[key], rel=1e-6, abs=1e-6)
    turned = paired(b, a)
    assert (turned["low"], turned["high"]) == pytest.approx((-found["high"], -found["low"]), rel=1e-9, abs=1e-9)


def test_pairs_decide_where_welch_does_not(both: tuple[unsmooth.Measurement, unsmooth.Measurement]) -> None:
    a, b = both
    sure, unsure = unsmooth.compare(a, b), unsmooth.compare(a, replace(b, per_sample=None))
    assert (set(sure["interval"]), set(unsure["interval"])) == ({"paired"}, {"Welch"})
    assert set(sure["pairs"]) == {12}
    assert set(unsure["pairs"]) == {0}
    assert row(sure, "blocks.1.post").differs
    assert not row(unsure, "blocks.1.post").differs
    assert not sure[sure.layer < 1]["differs"].any()
    for key in ("a", "b", "difference"):
        assert sure[key].to_numpy() == pytest.approx(unsure[key].to_numpy(), abs=1e-12)
    assert pair(a, b).interval.endswith("paired (Student's t): the same 12 inputs in both")


def test_welch_needs_two_samples_on_each_side_and_no_spread_is_no_width() -> None:
    one, several = Moments(1, 2.0), Moments(5, 2.5, 0.8)
    for a, b in ((one, several), (several, one)):
        found = welch(a, b)
        assert found["difference"] == b.mean - a.mean
        assert np.isnan([found["low"], found["high"]]).all()
        assert not found["differs"]
    sure = welch(Moments(4, 2.0), Moments(3, 2.5))
    assert (sure["low"], sure["high"], sure["differs"]) == (0.5, 0.5, True)
    assert not welch(Moments(4, 2.0), Moments(3, 2.0))["differs"]


def test_numbers_that_are_defined_differently_are_not_compared(
    both: tuple[unsmooth.Measurement, unsmooth.Measurement],
) -> None:
    a, b = both
    known = b.about.definitions
    definitions = replace(known, metrics={**known.metrics, "hfc_lfc": "another norm"})
    changed = replace(b, about=replace(b.about, definitions=definitions))
    with pytest.raises(UnsmoothError, match=r"hfc_lfc \(all tokens\) is defined differently"):
        unsmooth.compare(a, changed)


def test_order_and_batches_do_not_matter_but_the_inputs_do() -> None:
    model, data = vit(), images(4)
    a = unsmooth.measure(model, data)
    turned = unsmooth.measure(model, [torch.cat(data).flip(0)])
    assert pair(a, turned).places is not None
    assert not (unsmooth.compare(a, turned)["difference"].abs() > 1e-4).any()
    other = unsmooth.measure(model, images(4))
    assert pair(a, other, ("x", "y")).places is None
    said = "not paired (Welch): 8 inputs in x and 8 in y, none of them the same (other data"
    assert said in pair(a, other, ("x", "y")).interval


def test_a_part_of_the_samples_is_compared_on_that_part_and_an_overlap_is_not() -> None:
    model, data = vit(), images(4)
    whole, part = unsmooth.measure(model, data), unsmooth.measure(model, data[1:3])
    frame = unsmooth.compare(whole, part)
    assert (set(frame["pairs"]), frame["difference"].abs().max()) == ({4}, pytest.approx(0, abs=1e-5))
    assert frame["a"].to_numpy() == pytest.approx(part.frame()["mean"].to_numpy(), rel=1e-5)
    assert pair(whole, part).why == "on the 4 inputs that both hold, of 8 in A"
    assert pair(part, whole).why == "on the 4 inputs that both hold, of 8 in B"
    assert pair(whole, unsmooth.measure(model, [data[0][:1]])).why == "on the 1 input that both hold, of 8 in A"
    overlap = pair(unsmooth.measure(model, data[:3]), unsmooth.measure(model, data[2:]))
    assert overlap.places is None
    assert overlap.why == "6 inputs in A and 4 in B, 2 of them the same"


def test_samples_without_a_value_on_one_side_are_left_out_of_that_number() -> None:
    model, data = vit(), images(3)
    a, b = unsmooth.measure(model, data), unsmooth.measure(vit(), data)
    assert a.per_sample is not None
    assert b.per_sample is not None
    cell = next(iter(a.cells))
    a.per_sample[cell][1], b.per_sample[cell][4], b.per_sample[cell][1] = np.nan, np.inf, np.nan
    rows = unsmooth.compare(a, b)
    kept = [0, 2, 3, 5]
    expected = stats.ttest_rel(b.per_sample[cell][kept], a.per_sample[cell][kept]).confidence_interval()
    assert rows["pairs"].tolist() == [4] + [6] * (len(rows) - 1)
    assert (rows["low"][0], rows["high"][0]) == pytest.approx((expected.low, expected.high), rel=1e-6)
    a.per_sample[cell][:] = np.nan
    nothing = unsmooth.compare(a, b).iloc[0]
    assert (nothing["pairs"], nothing["differs"], np.isnan(nothing["difference"])) == (0, False, True)


def test_degenerate_samples_that_are_kept_do_not_spoil_the_others() -> None:
    model = vit(class_token=False, pos_embed="none", global_pool="avg")
    torch.nn.init.zeros_(model.patch_embed.proj.bias)
    data = [torch.randn(4, 3, 16, 16), torch.zeros(1, 3, 16, 16)]  # an image of zeros is embedded as zeros
    a = unsmooth.measure(model, data, degenerate="keep")
    with torch.no_grad():
        model.patch_embed.proj.weight[0] *= 1.5
    b = unsmooth.measure(model, data, degenerate="keep")
    assert np.isnan(a.cells[next(iter(a.cells))].mean)
    found = row(unsmooth.compare(a, b), "embed", "effective_rank")
    assert found.pairs == 4
    assert np.isfinite(found.high)


def test_why_there_are_no_pairs_is_said(
    both: tuple[unsmooth.Measurement, unsmooth.Measurement], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = both
    means = replace(b, per_sample=None)
    assert pair(a, means).why == "B holds means only, no values per sample"
    assert pair(means, a, ("run", "x")).why == "run holds means only, no values per sample"
    monkeypatch.setattr(pairing, "MOST_VALUES", 12 * len(b.cells))
    assert pair(a, means).why == "B holds means only, no values per sample"
    monkeypatch.setattr(pairing, "MOST_VALUES", 12 * len(b.cells) - 1)
    assert pair(a, means).why.startswith(f"B has 12 samples × {len(b.cells)} numbers, too many to keep each")


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(0, 6), max_size=25), st.lists(st.integers(0, 6), max_size=25))
def test_matching_pairs_equal_keys_each_once_and_as_many_as_there_are(a: list[int], b: list[int]) -> None:
    first, second = match(np.array(a, dtype=np.int64), np.array(b, dtype=np.int64))
    assert [a[i] for i in first] == [b[j] for j in second]
    assert len(set(first.tolist())) == len(set(second.tolist())) == len(first)
    assert len(first) == sum(min(a.count(key), b.count(key)) for key in set(a))


def test_what_is_no_measurement_is_not_compared() -> None:
    found = unsmooth.measure(vit(), images(1, 2), "hfc_lfc")
    with pytest.raises(UnsmoothError, match=r"expected two measurements.*got DataFrame"):
        unsmooth.compare(found, found.frame())  # type: ignore[arg-type]
