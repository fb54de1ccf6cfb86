"""The evaluator gives what the pure functions give, and keeps nothing."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Iterator

import pytest
import torch

from unsmooth.errors import FeatureError
from unsmooth.measure import device_spectra
from unsmooth.measure.device_spectra import DeviceSpectra
from unsmooth.measure.engine import Evaluator
from unsmooth.measure.features import Features
from unsmooth.measure.registry import METRICS, resolve

ALL = tuple(METRICS.values())


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
    x = torch.randn(2, 5, 6)
    alive = weakref.ref(x)
    evaluator.add("a", x)
    del x
    gc.collect()
    assert alive() is None
    assert list(evaluator.flush()) == ["a"]
    assert evaluator.flush() == {}


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
    assert evaluator.nonfinite == {"bad"}
    assert values["bad"]["effective_rank"].isnan().tolist() == [False, True, False]
    assert values["hidden"]["effective_rank"].isfinite().all()
    assert "NaN or infinity in 1 samples" in evaluator.flags["bad"].message()


def test_degenerate_samples_are_flagged_with_what_the_value_means() -> None:
    evaluator: Evaluator[str] = Evaluator(resolve("paper"))
    x = torch.randn(4, 6, 8)
    x[0, 1] = 0
    x[1, 3:] = -x[1, :3]
    x[2] = 0
    evaluator.add("a", x)
    values = evaluator.flush()["a"]
    flags = evaluator.flags["a"]
    assert flags.zero_token.tolist() == [True, False, True, False]
    assert flags.zero_mean.tolist() == [False, True, True, False]
    assert flags.all_zero.tolist() == [False, False, True, False]
    assert values["hfc_lfc"][1] == math.inf
    for text in ("counts with cosine 0", "HFC/LFC is infinite", r"0/0 (nan)"):
        assert text in flags.message()
    evaluator.add("b", x[3:])
    evaluator.flush()
    assert evaluator.flags["b"].message() == ""


def test_a_key_added_twice_is_refused() -> None:
    evaluator: Evaluator[str] = Evaluator(ALL)
    evaluator.add("a", torch.randn(1, 3, 4))
    with pytest.raises(ValueError, match="'a' was added twice"):
        evaluator.add("a", torch.randn(1, 3, 4))


@pytest.mark.parametrize(("kept", "message"), [(1, "a: expected at least 2 tokens"), (0, "a: .*nothing is left")])
def test_too_few_tokens_name_the_key_and_leave_the_evaluator_empty(kept: int, message: str) -> None:
    evaluator: Evaluator[str] = Evaluator(resolve("paper"))
    evaluator.add("a", torch.randn(1, 3, 4), torch.arange(3)[None] < kept)
    with pytest.raises(FeatureError, match=message):
        evaluator.flush()
    assert evaluator.flush() == {}


@pytest.mark.parametrize("limit", [0, 1 << 30])
def test_collected_eigenproblems_give_each_features_its_own_values(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_spectra, "PENDING_BYTES", limit)
    spectra = DeviceSpectra()
    inputs = [torch.randn(2, 5, 9), torch.randn(3, 9, 5), torch.randn(1, 7, 9), 1 + 1e-6 * torch.randn(2, 5, 9)]
    asked = [Features(x) for x in inputs]
    for features in asked:
        spectra.ask(features, "problem")
        features.release()
    spectra.finish()
    for features, x in zip(asked, inputs, strict=True):
        torch.testing.assert_close(features.singular_values(), Features(x).singular_values(), rtol=1e-7, atol=1e-12)
