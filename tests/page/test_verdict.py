"""What a verdict rests on: changes sample by sample where both are known, else the two ends."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import scipy.stats
import torch
from page.test_findings import measured, moments

import unsmooth
from unsmooth.analysis.measurement import Cell, Change
from unsmooth.analysis.per_sample import PerSample
from unsmooth.page.verdict import end_cells, vote


def test_clear_changes_decide_where_the_ends_overlap() -> None:
    found = measured({"hfc_lfc": -1.0}, spread=9.0)
    assert vote(found, "hfc_lfc", "all") == 0
    for kind, mean in (("Attention", 0.5), ("MLP", -0.9)):
        found.changes[Change("residual", kind, "hfc_lfc", "all")] = moments(mean, 0.25)
    assert vote(found, "hfc_lfc", "all") == 1


def test_without_both_changes_the_ends_decide() -> None:
    found = measured({"hfc_lfc": -1.0})
    found.changes.clear()
    found.changes[Change("residual", "Attention", "hfc_lfc", "all")] = moments(9.0, 0.01)
    assert vote(found, "hfc_lfc", "all") == 1


def test_the_change_of_each_sample_decides_where_samples_were_kept() -> None:
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, embed_dim=24, num_heads=2, depth=2)
    found = unsmooth.measure(model, [torch.randn(8, 3, 32, 32)])
    votes = []
    for metric, smoother in (("hfc_lfc", -1), ("cosine_similarity", 1), ("effective_rank", -1)):
        first, last = (found.per_sample[Cell(p, metric, "all")] for p in ("blocks.0.pre", "blocks.1.post"))  # type: ignore[index]
        clear = scipy.stats.ttest_rel(last, first).pvalue < 0.05
        votes.append(int(clear * np.sign((last - first).mean())) * smoother)
        assert vote(found, metric, "all") == votes[-1]
    assert any(votes)


@pytest.mark.parametrize("count", [3, 16])
def test_what_all_samples_do_alike_is_clear_however_much_they_differ(count: int) -> None:
    found = measured({"hfc_lfc": -1.0}, spread=50.0, count=count)
    assert vote(found, "hfc_lfc", "all") == 0
    start = np.linspace(-50, 50, count)
    cells = tuple(found.cells)
    table = np.stack([start - (cell.point == "blocks.1.post") + 0.01 * np.cos(start) for cell in cells])
    table[cells.index(Cell("blocks.1.post", "hfc_lfc", "all")), 0] += 0.01
    kept = dataclasses.replace(found, per_sample=PerSample(cells, np.arange(count), table))
    assert vote(kept, "hfc_lfc", "all") == 1
    table[:, 0] = np.inf  # a sample without a value at either end is left out
    assert vote(kept, "hfc_lfc", "all") == 1
    table[:] = np.nan
    assert vote(kept, "hfc_lfc", "all") == 0


def test_where_the_last_output_was_not_measured_the_last_point_of_that_metric_stands_for_it() -> None:
    found = measured({"hfc_lfc": -1.0, "cosine_similarity": 1.0}, layers=3)
    for point in ("blocks.2.post", "blocks.2.mid"):
        del found.cells[Cell(point, "hfc_lfc", "all")]
    found.cells[Cell("blocks.2.mid", "hfc_lfc", "patches")] = moments(9.0, 0.1)
    assert [cell.point for cell in end_cells(found, "hfc_lfc", "all")] == ["blocks.0.pre", "blocks.2.pre"]
    assert [cell.point for cell in end_cells(found, "cosine_similarity", "all")] == ["blocks.0.pre", "blocks.2.post"]
    for metric in ("hfc_lfc", "cosine_similarity"):
        del found.cells[Cell("blocks.0.pre", metric, "all")]
    assert end_cells(found, "hfc_lfc", "all")[0].point == "blocks.0.mid"


@pytest.mark.parametrize(("factor", "expected"), [(1.05, 1), (0.95, 0)])
def test_a_change_is_clear_beyond_half_of_its_interval(factor: float, expected: int) -> None:
    found = measured({"hfc_lfc": 0.0})
    noise = np.linspace(-1, 1, 16)
    half = float(scipy.stats.t.ppf(0.975, 15) * noise.std(ddof=1) / 4)
    cells = tuple(found.cells)
    table = np.zeros((len(cells), 16))
    table[cells.index(Cell("blocks.1.post", "hfc_lfc", "all"))] = noise - factor * half
    kept = dataclasses.replace(found, per_sample=PerSample(cells, np.arange(16), table))
    assert vote(kept, "hfc_lfc", "all") == expected
    for kind in ("Attention", "MLP"):  # without samples: the sum of both halves is a bound
        found.changes[Change("residual", kind, "hfc_lfc", "all")] = moments(-factor * half, 1.0)
    assert vote(found, "hfc_lfc", "all") == expected


def test_the_sign_of_one_sample_is_taken_as_it_is() -> None:
    assert vote(measured({"hfc_lfc": -0.1}, count=1), "hfc_lfc", "all") == 1
