"""Spectra within a budget: fewer samples, the same ones in every run, and never silently; the rank of the data."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from reference import metrics as reference
from small_models import bert

import unsmooth
from unsmooth.analysis.measuring import budget
from unsmooth.analysis.measuring.budget import RankBudget
from unsmooth.analysis.measuring.cells import Cell
from unsmooth.errors import OptionError, UnsmoothError
from unsmooth.models import hook_points, view

RANK = Cell("blocks.1.post", "effective_rank", "all")


def batches(count: int, size: int = 4) -> list[dict[str, Any]]:
    generator = torch.Generator().manual_seed(0)
    return [{"input_ids": torch.randint(50, (size, 9), generator=generator)} for _ in range(count)]


def test_what_a_poorer_run_takes_a_richer_one_takes_too() -> None:
    taken = []
    for price in (0.5, 1.9, 3.0, 17.0):
        chooser = RankBudget(2)
        found = []
        for start in range(0, 64, 4):
            found += [start + i for i in chooser.choose(900, 4) or ()]
            chooser.learn(4, 4.0 + price, price, 1)
        taken.append(set(found[1:]))  # the first batch has only its first sample, whatever comes after
    assert [len(found) for found in taken] == [60, 30, 15, 1]
    assert taken[0] >= taken[1] >= taken[2] >= taken[3]


def test_small_spectra_are_always_found_unless_a_budget_was_asked_for() -> None:
    assert RankBudget().choose(budget.CHEAP, 8) is None
    assert RankBudget().choose(budget.CHEAP + 1, 8) == [0]
    assert RankBudget(1.5).choose(3, 8) == [0]
    assert RankBudget("exact").choose(4096, 8) is None


@pytest.mark.parametrize(
    ("price", "why"),
    [(0.5, "the others came before it was known .* 0.5 times"), (3.0, r"\(matrices of up to 900 rows\)")],
)
def test_the_note_says_why_samples_were_left_out(price: float, why: str) -> None:
    chooser = RankBudget(2)
    assert chooser.choose(900, 2) == [0]
    chooser.learn(2, 2.0 + price, price, 1)
    assert re.search(rf"rank: of 1 of 2 samples, because .*{why}", chooser.note("rank", 1) or "")


@pytest.mark.parametrize("wrong", [1, 0, "much", math.nan])
def test_a_budget_below_the_forward_pass_is_refused(wrong: Any) -> None:
    with pytest.raises(OptionError, match="expected a rank budget above 1"):
        RankBudget(wrong)


def test_only_metrics_of_spectra_lose_samples_and_the_result_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(RankBudget, "period", 4.0)
    model, data = bert().eval(), batches(3)
    part, whole = (unsmooth.measure(model, data, rank_budget=b) for b in (1.5, "exact"))
    assert part.cells[RANK].count == 3
    ratio = RANK._replace(metric="hfc_lfc")
    assert part.cells[ratio].count == whole.cells[ratio].count
    assert part.cells[ratio].mean == pytest.approx(whole.cells[ratio].mean, rel=1e-9)
    assert whole.cells[RANK].count == 12
    assert whole.per_sample is not None
    assert part.cells[RANK].mean == pytest.approx(whole.per_sample[RANK][[0, 4, 8]].mean(), rel=1e-9)
    assert [note for note in part.notes if "effective_rank: of 3 of 12 samples" in note]
    assert not whole.notes
    counts = part.change_by_kind(full=True).set_index("metric")["count"]
    assert set(counts["effective_rank"]) == {3}
    assert set(counts["hfc_lfc"]) == {12}
    again = unsmooth.load(part.save(tmp_path / "part.json"))
    assert again.cells == part.cells
    assert np.isfinite(again.per_sample[RANK]).sum() == 3
    rows = unsmooth.compare(part, whole).set_index("metric")
    assert float(rows.loc["effective_rank", "difference"].abs().max()) < 1e-6


def test_the_rank_of_the_data_is_that_of_all_tokens_in_one_matrix(tmp_path: Path) -> None:
    model, data = bert().eval(), batches(3)
    found: list[torch.Tensor] = []
    v = view(model)
    with torch.no_grad(), hook_points(v, ["blocks.1.post"], lambda _, x: found.append(x.double())):
        for batch in data:
            model(**batch)
    expected = float(reference.entropy_rank(torch.cat(found).flatten(0, 1)))
    last = RANK._replace(metric="dataset_rank")
    whole = unsmooth.measure(model, data, ["dataset_rank", "hfc_lfc"])
    assert whole.cells[last].mean == pytest.approx(expected, rel=1e-6)
    assert whole.cells[last].count == 12
    parts = [unsmooth.measure(model, each, ["dataset_rank", "hfc_lfc"]) for each in (data[:1], data[1:])]
    assert parts[0].merge(parts[1]).cells[last].mean == pytest.approx(expected, rel=1e-6)
    loaded = unsmooth.load(parts[0].save(tmp_path / "part.json"))
    assert loaded.cells[last].mean == parts[0].cells[last].mean
    with pytest.raises(UnsmoothError, match="dataset_rank is one number for all of the data"):
        loaded.merge(parts[1])
