"""The evaluator gives what the pure functions give, and keeps nothing."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest
import torch
from reference import metrics as reference

from unsmooth.errors import FeatureError
from unsmooth.metrics import engine, staging
from unsmooth.metrics.engine import Evaluator
from unsmooth.metrics.features import Features
from unsmooth.metrics.registry import METRICS, RANK, Metric, resolve
from unsmooth.metrics.statistics import ReducedFeatures, Statistics

ALL = tuple(row for row in METRICS.values() if not row.over_data)


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Workers, also where the tests run on one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def masks(batch: int, tokens: int) -> torch.Tensor:
    """Random masks that keep two tokens at least."""
    mask = torch.rand(batch, tokens) < 0.6
    mask[:, :2] = True
    return mask


@pytest.mark.parametrize("shape", [(5, 9, 14), (5, 14, 9), (1, 9, 14)])
def test_values_equal_the_pure_functions(shape: tuple[int, ...], two_threads: None) -> None:
    x, mask = torch.randn(shape), masks(*shape[:2])
    evaluator: Evaluator[str] = Evaluator(ALL)
    evaluator.add_each(x, {"all": None, "some": mask})
    evaluator.add("alone", x, mask)
    values = evaluator.flush()
    assert list(values) == ["all", "some", "alone"]
    for key, used in (("all", None), ("some", mask), ("alone", mask)):
        for metric in ALL:
            expected = metric.value(Features(x, used))
            torch.testing.assert_close(values[key][metric.name], expected, rtol=1e-9, atol=1e-12)


def test_nothing_is_kept_after_add_and_flush(two_threads: None) -> None:
    evaluator: Evaluator[str] = Evaluator(ALL)
    x = torch.randn(2, 5, 7)
    alive = weakref.ref(x)
    evaluator.add("a", x)
    del x
    gc.collect()
    assert alive() is None
    assert not [o for o in gc.get_objects() if issubclass(type(o), torch.Tensor) and o.shape == (2, 5, 7)]
    assert list(evaluator.flush()) == ["a"]
    assert evaluator.flush() == {}


@pytest.mark.parametrize("deferred", [False, True])
@pytest.mark.parametrize(("limit", "early"), [(0, 3), (1 << 30, 0)])
def test_what_waits_for_its_eigenvalues_is_bounded(
    deferred: bool, limit: int, early: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "PENDING_BYTES", limit)
    monkeypatch.setattr(staging, "DEFERRED_BYTES", limit)
    seen = []

    def value(f: Features) -> torch.Tensor:
        seen.append(f.tokens)
        return f.singular_values()[..., 0]

    evaluator: Evaluator[int] = Evaluator([Metric("x", "x", "x", value, RANK, spectrum="problem")], deferred)
    for key in range(3):
        evaluator.add(key, torch.randn(2, 4 + key, 9))
    assert len(seen) == early
    assert list(evaluator.flush()) == [0, 1, 2]
    assert sorted(seen) == [4, 5, 6]


def test_features_that_need_gradients_are_measured_without_a_graph() -> None:
    evaluator: Evaluator[str] = Evaluator(ALL)
    evaluator.add("a", torch.randn(2, 5, 6, requires_grad=True) * 2)
    assert not any(v.requires_grad for v in evaluator.flush()["a"].values())


def test_inference_tensors_can_be_measured_from_worker_threads(two_threads: None) -> None:
    evaluator: Evaluator[str] = Evaluator(resolve("paper"))
    with torch.inference_mode():
        evaluator.add("a", torch.randn(4, 5, 6) + 1)
    assert evaluator.flush()["a"]["effective_rank"].shape == (4,)


def test_nonfinite_features_are_reported_by_key() -> None:
    evaluator: Evaluator[str] = Evaluator(resolve("paper"))
    x = torch.randn(3, 5, 6)
    bad = x.clone()
    bad[1, 2, 3] = math.nan
    hidden = torch.ones(3, 5, dtype=torch.bool)
    hidden[1, 2] = False
    evaluator.add("good", x)
    evaluator.add_each(bad, {"bad": None, "hidden": hidden})
    values = evaluator.flush()
    assert set(evaluator.flagged) == {"bad"}
    assert values["bad"]["effective_rank"].isnan().tolist() == [False, True, False]
    assert values["hidden"]["effective_rank"].isfinite().all()
    assert evaluator.flagged["bad"].nonfinite.tolist() == [False, True, False]


def test_degenerate_samples_are_flagged() -> None:
    evaluator: Evaluator[str] = Evaluator(resolve("paper"))
    x = torch.randn(4, 6, 8)
    x[0, 1] = 0
    x[1, 3:] = -x[1, :3]
    x[2] = 0
    evaluator.add("a", x)
    values = evaluator.flush()["a"]
    flags = evaluator.flagged["a"]
    assert flags.zero_token.tolist() == [True, False, True, False]
    assert flags.zero_mean.tolist() == [False, True, True, False]
    assert flags.all_zero.tolist() == [False, False, True, False]
    assert values["hfc_lfc"][1] == math.inf
    evaluator.add("b", x[3:])
    evaluator.flush()
    assert evaluator.flagged == {}


def test_a_key_added_twice_is_refused() -> None:
    evaluator: Evaluator[str] = Evaluator(ALL)
    evaluator.add("a", torch.randn(1, 3, 4))
    with pytest.raises(ValueError, match="'a' was added twice"):
        evaluator.add("a", torch.randn(1, 3, 4))


def test_a_refused_point_leaves_the_others_as_they_were() -> None:
    evaluator: Evaluator[str] = Evaluator(ALL)
    evaluator.add("a", torch.randn(1, 3, 4))
    with pytest.raises(FeatureError, match="expected a mask of shape"):
        evaluator.add("b", torch.randn(1, 3, 4), torch.ones(1, 5, dtype=torch.bool))
    assert list(evaluator.flush()) == ["a"]


@pytest.mark.parametrize(("kept", "message"), [(1, "expected at least 2 tokens"), (0, ".*nothing is left")])
@pytest.mark.parametrize(("key", "name"), [("embed", "embed"), (("embed", "all"), "embed, all")])
def test_too_few_tokens_name_the_key_and_leave_the_evaluator_empty(
    kept: int, message: str, key: str | tuple[str, str], name: str
) -> None:
    evaluator: Evaluator[Any] = Evaluator(resolve("paper"))
    evaluator.add(key, torch.randn(1, 3, 4), torch.arange(3)[None] < kept)
    with pytest.raises(FeatureError, match=f"^{name}: {message}"):
        evaluator.flush()
    assert evaluator.flush() == {}


@pytest.mark.parametrize("deferred", [False, True])
def test_a_metric_that_fails_leaves_the_evaluator_empty(deferred: bool) -> None:
    def fail(f: Features) -> torch.Tensor:
        raise RuntimeError("out of memory")

    evaluator: Evaluator[str] = Evaluator([Metric("x", "x", "x", fail, RANK, spectrum="problem")], deferred)
    evaluator.add("a", torch.randn(1, 3, 4))
    with pytest.raises(RuntimeError, match="out of memory"):
        evaluator.flush()
    assert evaluator.flush() == {}


def test_released_features_keep_what_was_computed_and_no_tokens() -> None:
    f = Features(torch.randn(2, 3, 4))
    norms = f.norms.clone()
    f.release()
    assert torch.equal(f.norms, norms)
    with pytest.raises(RuntimeError, match="the features were released"):
        _ = f.centred


def test_a_second_mask_on_masked_features_is_refused() -> None:
    mask = torch.tensor([[True, True, False]])
    with pytest.raises(ValueError, match="from unmasked features"):
        Features(torch.randn(1, 3, 4), mask).masked(mask)


@pytest.mark.parametrize("limit", [0, 1 << 30])
def test_deferred_evaluation_gives_the_same_values(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "PENDING_BYTES", limit)
    monkeypatch.setattr(staging, "DEFERRED_BYTES", limit)
    now: Evaluator[int] = Evaluator(ALL, deferred=False)
    later: Evaluator[int] = Evaluator(ALL, deferred=True)
    inputs = [torch.randn(2, 5, 9), torch.randn(3, 9, 5), torch.randn(1, 5, 9), 1 + 1e-5 * torch.randn(2, 5, 9)]
    inputs += [1 + 1e-5 * torch.randn(2, 9, 5), torch.zeros(2, 9, 5), torch.randn(2, 6, 6).bfloat16()]
    for evaluator in (now, later):
        for key, x in enumerate(inputs):
            evaluator.add(key, x)
            evaluator.add(-1 - key, x, torch.arange(x.shape[1]).expand(x.shape[:2]) != 2)
    expected, values = now.flush(), later.flush()
    assert list(values) == list(expected)
    for key, by_metric in values.items():
        assert list(by_metric) == [metric.name for metric in ALL]
        for name, value in by_metric.items():
            torch.testing.assert_close(value, expected[key][name], rtol=1e-7, atol=1e-11, equal_nan=True)
    assert later.flagged.keys() == now.flagged.keys()
    for key, flags in now.flagged.items():
        for flag in fields(flags):
            assert torch.equal(getattr(later.flagged[key], flag.name), getattr(flags, flag.name)), (key, flag.name)


@pytest.mark.parametrize("shape", [(2, 60, 90), (2, 90, 60), (2, 200, 300)])
@pytest.mark.parametrize("collapse", [1.0, 1e-2, 1e-4, 1e-6, 0.0])
def test_the_promise_holds_for_deferred_evaluation(shape: tuple[int, ...], collapse: float) -> None:
    x = torch.randn(shape[0], 1, shape[2]) + collapse * torch.randn(shape)
    evaluator: Evaluator[str] = Evaluator(resolve("paper,paper-spectral"), deferred=True)
    evaluator.add("a", x)
    values = evaluator.flush()["a"]
    for i in range(len(x)):
        assert float(values["effective_rank"][i]) == pytest.approx(
            float(reference.entropy_rank(x[i].double())), rel=1e-4
        )
        if collapse:
            for name, norm in (("hfc_lfc", "fro"), ("hfc_lfc_spectral", "spectral")):
                truth = float(reference.high_low_ratio(x[i].double(), norm))
                assert float(values[name][i]) == pytest.approx(truth, rel=1e-4)


@pytest.mark.parametrize("shape", [(3, 6, 9), (3, 9, 6)])
@pytest.mark.parametrize("size", [30, 0.03])
def test_near_collapse_statistics_give_every_singular_value(shape: tuple[int, ...], size: float) -> None:
    x = size * (torch.randn(shape[0], 1, shape[2]) + 3e-4 * torch.randn(shape)).double()
    mask = torch.arange(shape[1]).expand(shape[:2]) != 2
    for used, tokens in ((None, x), (mask, x[:, mask[0]])):
        found = ReducedFeatures(Statistics.of(x, used).with_gram(x, used is not None)).singular_values()
        expected = torch.linalg.svdvals(tokens)
        torch.testing.assert_close(found[:, : expected.shape[1]], expected, rtol=1e-6, atol=0)
        assert not found[:, expected.shape[1] :].any()


def test_deferred_rank_one_features_have_effective_rank_one() -> None:
    evaluator: Evaluator[str] = Evaluator(resolve("effective_rank"), deferred=True)
    evaluator.add("a", torch.randn(1, 200, 1).double() @ torch.randn(1, 1, 300).double())
    assert float(evaluator.flush()["a"]["effective_rank"]) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("deferred", [False, True])
@pytest.mark.parametrize("shape", [(4, 9, 14), (4, 14, 9)])
def test_every_metric_is_found_where_some_samples_alone_have_spectra(shape: tuple[int, ...], deferred: bool) -> None:
    x, mask = torch.randn(shape), masks(*shape[:2])
    evaluator: Evaluator[str] = Evaluator(ALL, deferred, choose=lambda *_: [1, 3])
    evaluator.add_each(x, {"all": None, "some": mask})
    values = evaluator.flush()
    for key, used in (("all", None), ("some", mask)):
        for metric in ALL:
            expected = metric.value(Features(x, used))
            if metric.spectrum:
                expected[[0, 2]] = math.nan
            torch.testing.assert_close(values[key][metric.name], expected, rtol=1e-9, atol=1e-12, equal_nan=True)
