"""What explains a step: from saved results, from files that `explain` wrote, and in words that count right."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from small_models import images, vit

import unsmooth
from unsmooth.analysis.tables import CANDIDATES, FORECAST
from unsmooth.errors import OptionError
from unsmooth.paper import Context, find_item
from unsmooth.paper.explains import Explained, in_words, rows_of


def row(model: str, candidate: str, spearman: float, low: float = 0.1, clear: bool = False) -> Explained:
    return Explained(model=model, tokens="all", layers=3, inputs=4, candidate=candidate, spearman=spearman, low=low,
                     high=1.0, right=0.5, guessing=0.5, clear=clear)  # fmt: skip


def test_words_count_models() -> None:
    found = [row("a", "mean_field", 0.9, clear=True), row("a", FORECAST, 0.5), row("b", "mean_field", math.nan),
             row("b", FORECAST, 0.4), row("c", "mean_field", 0.2, low=-0.1), row("c", FORECAST, 0.8)]  # fmt: skip
    first, second = in_words(found)
    assert first == (
        "mean field: rank correlation +0.20 to +0.90, its interval above 0 in 1 of 2; the sign clearly more often "
        "right than by guessing in 1; a higher rank correlation than the step on other inputs in 1"
    )
    assert second.startswith("other inputs: rank correlation +0.40 to +0.80, its interval above 0 in 3 of 3")


def test_files_of_explanations_are_taken_as_they_are(tmp_path: Path) -> None:
    torch.manual_seed(0)
    explanation = unsmooth.explain(vit().eval(), images(2), spectra=0)
    path = explanation.save(tmp_path / "mine.json")
    result = find_item("explains").run(Context(models=(f"Mine={path}",)))
    assert [table.rows[0][0] for table in result.tables] == ["Mine", "Mine"]
    rows = rows_of("Mine", explanation)
    assert [r["candidate"] for r in rows] == list(CANDIDATES)
    assert result.about["explained"] == rows
    exact = explanation.agreement("frozen_ratio")
    assert rows[0]["guessing"] == exact.majority


def test_saved_results_cover_eight_models_and_need_no_model() -> None:
    result = find_item("explains").run(Context())
    models = {r["model"] for r in result.about["explained"]}
    assert len(models) >= 8
    assert all(FORECAST in {r["candidate"] for r in result.about["explained"] if r["model"] == m} for m in models)


def test_without_saved_results_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unsmooth.paper.evidence.Evidence.saved", lambda self, item: {})
    with pytest.raises(OptionError, match="--recompute"):
        find_item("explains").run(Context())
