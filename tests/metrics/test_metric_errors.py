"""What a user reads when features have no value."""

from __future__ import annotations

import pytest
import torch

from unsmooth.errors import FeatureError, OptionError
from unsmooth.metrics import definitions as metrics


def test_an_unknown_norm_lists_the_valid_ones() -> None:
    with pytest.raises(OptionError, match="unknown norm 'l1': expected one of 'fro', 'spectral'"):
        metrics.hfc_lfc_ratio(torch.randn(3, 4), norm="l1")


def test_one_token_has_no_cosine() -> None:
    with pytest.raises(FeatureError, match=r"at least 2 tokens .* got 1: give longer inputs"):
        metrics.cosine_similarity(torch.randn(2, 1, 4))


def test_one_kept_token_has_no_cosine() -> None:
    mask = torch.tensor([[True, True, False], [True, False, False]])
    with pytest.raises(FeatureError, match=r"at least 2 tokens .* got 1"):
        metrics.cosine_similarity(torch.randn(2, 3, 4), mask)


def test_two_kept_tokens_have_a_cosine() -> None:
    x, mask = torch.randn(1, 3, 4).double(), torch.tensor([[True, False, True]])
    expected = torch.cosine_similarity(x[0, 0], x[0, 2], dim=0)
    assert float(metrics.cosine_similarity(x, mask)) == pytest.approx(float(expected))


def test_one_token_has_effective_rank_one_and_ratio_zero() -> None:
    x = torch.randn(1, 4)
    assert float(metrics.effective_rank(x)) == pytest.approx(1)
    assert float(metrics.hfc_lfc_ratio(x)) == 0


@pytest.mark.parametrize("metric", [metrics.hfc_lfc_ratio, metrics.effective_rank, metrics.dong2021])
def test_a_mask_that_leaves_nothing_says_in_how_many_samples(metric) -> None:  # type: ignore[no-untyped-def]
    mask = torch.tensor([[True, True, True], [False, False, False]])
    with pytest.raises(FeatureError, match=r"nothing is left of 1 of 2 samples: check the mask \(True = kept\)"):
        metric(torch.randn(2, 3, 4), mask=mask)


def test_no_tokens_at_all_says_which_shape_came() -> None:
    with pytest.raises(FeatureError, match=r"at least one token and one feature, got shape \(2, 0, 4\)"):
        metrics.effective_rank(torch.randn(2, 0, 4))


@pytest.mark.parametrize(
    ("x", "mask", "message"),
    [
        (torch.randn(4), None, r"shape \(\.\.\., tokens, dim\), got torch.float32 of shape \(4,\)"),
        (torch.ones(3, 4, dtype=torch.int64), None, "floating-point features"),
        (torch.randn(3, 4), torch.ones(3), "expected a bool mask"),
        (torch.randn(3, 4), torch.ones(4, dtype=torch.bool), r"mask of shape \(3,\).*got \(4,\)"),
        (torch.randn(2, 3, 4), torch.ones(2, 1, dtype=torch.bool), r"mask of shape \(2, 3\)"),
    ],
)
def test_wrong_shapes_are_named(x: torch.Tensor, mask: torch.Tensor | None, message: str) -> None:
    with pytest.raises(FeatureError, match=message):
        metrics.effective_rank(x, mask)
