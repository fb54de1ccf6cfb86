"""From the theorem to a real block."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
import torch

from unsmooth.figures.ladder import ladder as drawing
from unsmooth.paper import Context, find_item
from unsmooth.paper.relax import grouped, table_of
from unsmooth.theory.ladder import RUNGS, Draw, Layer, doubly_stochastic, ladder, split_heads


@pytest.fixture(scope="module")
def rungs() -> list[Draw]:
    return [draw for seed in range(3) for draw in ladder(seed, layers=64)]


def test_the_theory_is_exact_until_a_normalisation_comes(rungs: list[Draw]) -> None:
    linear = [d for d in rungs if d.rung in RUNGS[:4]]
    assert len(linear) == 3 * 4 * 2
    for draw in linear:
        assert draw.measured == pytest.approx(draw.predicted, abs=1e-2)
        assert draw.rose == (draw.mode == "sharpening") == (draw.exponent > 0)
    assert max(abs(d.measured - d.predicted) for d in rungs if d.rung in RUNGS[4:]) > 1


def test_each_rung_changes_the_layer(rungs: list[Draw]) -> None:
    ends = [d.measured for d in rungs if d.mode == "sharpening"][: len(RUNGS)]
    assert all(abs(a - b) > 1e-6 for a, b in pairwise(ends[1:]))


def test_a_balanced_matrix_is_symmetric_and_sums_to_one_both_ways() -> None:
    scores = torch.randn(9, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    a = doubly_stochastic(3 * (scores + scores.mT))
    assert torch.allclose(a, a.mT, atol=1e-9)
    assert torch.allclose(a.sum(0), torch.ones(9, dtype=torch.float64), atol=1e-9)
    assert bool((a > 0).all())


def test_heads_share_the_eigenvectors_of_one_h() -> None:
    from unsmooth.theory.scenario import random_h

    h = random_h(8, "general", "sharpening", torch.Generator().manual_seed(1))
    parts = split_heads(h, 4)
    assert torch.allclose(parts.sum(0), h.mT, atol=1e-9)
    for part in parts:
        assert int((torch.linalg.eigvals(part).abs() > 1e-8).sum()) <= 2


def test_a_layer_of_all_parts_is_the_formula() -> None:
    generator = torch.Generator().manual_seed(2)
    x, w = (torch.randn(*s, generator=generator, dtype=torch.float64) for s in ((5, 4), (2, 4, 4)))
    a = torch.randn(2, 5, 5, generator=generator, dtype=torch.float64).softmax(-1)
    weight, bias, offset = torch.rand(3, 4, generator=generator, dtype=torch.float64)
    inner = (x - x.mean(-1, keepdim=True)) / (x.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt() * weight + bias
    after = x + sum(a[h] @ inner @ w[h] for h in range(2)) + offset
    layer = Layer(a, w, weight, bias, offset, torch.tanh)
    assert torch.allclose(layer(x), after + torch.tanh(after))


def test_table_and_drawing_hold_every_rung(rungs: list[Draw]) -> None:
    table = table_of(rungs)
    assert [row[0] for row in table.rows[::2]] == list(RUNGS)
    assert {row[-1] for row in table.rows} == {3}
    svg = drawing(grouped(rungs)).svg()
    for rung in RUNGS:
        assert rung.split()[-1] in svg


def test_without_models_the_rungs_end_with_random_layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNSMOOTH_ZOO", str(tmp_path))
    result = find_item("relax").run(Context(samples=1))
    assert "no trained model is here" in result.notes[-1]
    assert len(result.tables[0].rows) == 2 * len(RUNGS)


@pytest.mark.usefixtures("little_zoo")
def test_trained_blocks_are_the_models_own() -> None:
    result = find_item("relax").run(Context(samples=1))
    rows = {(row[0], row[1]): row for row in result.tables[0].rows}
    assert rows["trained block, run once", "sharpening"][-1] == 2  # both layers of the small model
