"""Metrics and presets by name."""

from __future__ import annotations

import pytest
import torch

from unsmooth.errors import OptionError
from unsmooth.metrics.features import Features
from unsmooth.metrics.registry import METRICS, PRESETS, resolve


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_resolves_with_either_spelling(preset: str) -> None:
    assert [m.name for m in resolve(preset)] == list(PRESETS[preset])
    assert resolve(preset.replace("-", "_")) == resolve(preset)


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_gives_one_value_per_sample_and_says_what_it_is(name: str) -> None:
    metric = METRICS[name]
    assert metric.value(Features(torch.randn(3, 5, 4))).shape == (3,)
    assert "float64" in metric.definition
    assert "mean over samples" in metric.definition


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_uses_the_spectrum_it_names_and_no_other(name: str) -> None:
    features = Features(torch.randn(3, 5, 4))
    METRICS[name].value(features)
    assert set(features.spectra) == ({METRICS[name].spectrum} if METRICS[name].spectrum else set())


def test_strings_lists_and_rows_mix_and_repeat() -> None:
    rows = resolve(["paper", METRICS["dirichlet"], "hfc-lfc", "rankme"])
    assert [m.name for m in rows] == ["hfc_lfc", "cosine_similarity", "effective_rank", "dirichlet", "rankme"]
    assert resolve(METRICS["rankme"]) == (METRICS["rankme"],)


def test_an_unknown_metric_lists_presets_and_names() -> None:
    with pytest.raises(OptionError, match=r"unknown metric 'cosin': expected one of 'paper'.*'cosine_similarity'"):
        resolve("paper,cosin")


def test_nothing_asked_for_is_an_error() -> None:
    with pytest.raises(OptionError, match="no metric was asked for"):
        resolve([])
    with pytest.raises(OptionError, match="expected the name of a metric, got 3"):
        resolve([3])  # type: ignore[list-item]
