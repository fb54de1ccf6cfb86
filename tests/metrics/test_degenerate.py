"""What is said of samples on which a metric has no ordinary value, and when it is an error."""

from __future__ import annotations

import pytest
import torch
from small_models import images, vit

import unsmooth
from unsmooth.errors import FeatureError, OptionError
from unsmooth.metrics.degenerate import degeneracies
from unsmooth.metrics.engine import Evaluator
from unsmooth.metrics.registry import resolve


def said(x: torch.Tensor, metrics: str, rule: str = "keep") -> list[str]:
    rows = resolve(metrics)
    evaluator: Evaluator[str] = Evaluator(rows)
    evaluator.add("x", x)
    evaluator.flush()
    return [text for flags in evaluator.flagged.values() for text in degeneracies(flags, rows, rule, "here")]


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(3, 4, 5)


@pytest.mark.parametrize(("metrics", "touched"), [("cosine_similarity", True), ("hfc_lfc", False), ("rankme", False)])
def test_a_zero_token_matters_to_cosines_only(x: torch.Tensor, metrics: str, touched: bool) -> None:
    x[1, 2] = 0
    assert [note.split(";")[0] for note in said(x, metrics)] == touched * [
        "here: a token is zero everywhere in 1 sample: it has no direction and counts with cosine 0"
    ]
    if touched:
        with pytest.raises(FeatureError, match=r"here: a token is zero .*degenerate='keep'.*tokens='no-outliers'"):
            said(x, metrics, "error")
    else:
        assert said(x, metrics, "error") == []


@pytest.mark.parametrize(("metrics", "touched"), [("cosine_similarity", False), ("hfc_lfc", True), ("rankme", False)])
def test_a_zero_mean_matters_to_the_ratio_only(x: torch.Tensor, metrics: str, touched: bool) -> None:
    x[:2, 2:] = -x[:2, :2]
    notes = said(x, metrics)
    assert len(notes) == touched
    assert all("the mean token is zero in 2 samples" in note for note in notes)


def test_features_that_are_all_zero_are_told_once_without_what_follows_from_it(x: torch.Tensor) -> None:
    x[0] = 0
    (note,) = said(x, "paper")
    assert "all features are zero in 1 sample" in note
    assert len(said(x, "rankme")) == 1


def test_nan_is_an_error_whatever_the_rule(x: torch.Tensor) -> None:
    x[0, 1, 2], x[1] = torch.nan, 0
    for rule in ("keep", "error"):
        with pytest.raises(FeatureError, match=r"here: NaN or infinity in 1 sample.*use a wider dtype"):
            said(x, "paper", rule)
    data = images()
    data[0][0, 0, 0, 0] = torch.inf
    with pytest.raises(FeatureError, match=r"embed, all tokens: NaN or infinity in 1 sample"):
        unsmooth.measure(vit(), data, degenerate="keep")


def test_ordinary_features_are_not_commented(x: torch.Tensor) -> None:
    assert said(x, "paper,paper-spectral,vita2022", "error") == []


def test_an_unknown_rule_lists_the_valid_ones() -> None:
    with pytest.raises(OptionError, match=r"unknown rule for degenerate samples 'ignore'.*'error', 'keep'"):
        unsmooth.measure(vit(), images(), degenerate="ignore")
