"""Long inputs: reduced a chunk at a time where they lie, to the numbers that whole copies give."""

from __future__ import annotations

import pytest
import torch
from small_models import bert
from torch import Tensor

import unsmooth
from benchmarks.largest_new import LargestNew
from unsmooth.metrics import statistics
from unsmooth.metrics.engine import Evaluator
from unsmooth.metrics.registry import resolve
from unsmooth.metrics.second_moment import SecondMoment

TOKENS, DIM = 3000, 64
CHUNK = 64 * DIM


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "CPU_CHUNK", CHUNK)


def features(dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return (torch.randn(1, TOKENS, DIM, generator=generator) + torch.randn(DIM, generator=generator)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_copy_of_a_long_input_is_made(dtype: torch.dtype, small_chunks: None) -> None:
    x = features(dtype)
    mask = torch.arange(TOKENS)[None] % 7 != 3
    evaluator: Evaluator[str] = Evaluator(resolve("paper"))
    moment = SecondMoment()
    with LargestNew(x) as made:
        evaluator.add_each(x, {"all": None, "some": mask})
        evaluator.flush()
        moment.update(x, mask)
    # a chunk, a number for each token, or a Gram matrix, in float64; twice that for pairs of them
    assert made.bytes <= 2 * 8 * max(CHUNK, TOKENS, DIM * DIM)
    assert made.bytes < x.nbytes / 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_chunks_give_the_numbers_of_the_whole(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    x = features(dtype)
    mask = torch.arange(TOKENS)[None] % 7 != 3
    found = []
    for size in (statistics.CPU_CHUNK, CHUNK):
        monkeypatch.setattr(statistics, "CPU_CHUNK", size)
        evaluator: Evaluator[str] = Evaluator(resolve("paper"))
        evaluator.add_each(x, {"all": None, "some": mask}, keep_norms="all")
        values, moment = evaluator.flush(), SecondMoment()
        moment.update(x, mask)
        found.append([*values["all"].values(), *values["some"].values(), evaluator.norms["all"], moment.total])
    for whole, chunked in zip(*found, strict=True):
        torch.testing.assert_close(chunked, whole, rtol=1e-6, atol=1e-9)


def test_a_model_is_measured_the_same_on_a_long_text(monkeypatch: pytest.MonkeyPatch) -> None:
    model = bert().eval()
    batch = {"input_ids": torch.randint(50, (2, 60), generator=torch.Generator().manual_seed(0))}
    whole = unsmooth.measure(model, [batch], tokens=["all", "no-outliers"])
    monkeypatch.setattr(statistics, "CPU_CHUNK", 1 << 7)
    chunked = unsmooth.measure(model, [batch], tokens=["all", "no-outliers"])
    for cell, moments in whole.cells.items():
        assert chunked.cells[cell].mean == pytest.approx(moments.mean, rel=1e-6), cell
