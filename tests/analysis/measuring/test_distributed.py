"""Two processes that measure half the data each report what one process measures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from processes import joined, run_twice

import unsmooth
from unsmooth.analysis.measuring import per_sample
from unsmooth.analysis.measuring.pairing import pair

timm = pytest.importorskip("timm")
RANK = ["dataset_rank", "hfc_lfc"]


def _model() -> torch.nn.Module:
    torch.manual_seed(3)
    return timm.models.VisionTransformer(img_size=16, patch_size=8, embed_dim=16, depth=2, num_heads=2, num_classes=2)


def _data() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(4)
    return [torch.randn(n, 3, 16, 16, generator=generator) for n in (3, 1, 2)]


def _half(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    with joined(rank, folder):
        mine = unsmooth.measure(_model(), _data()[rank::2])
        mine.all_reduce().save(Path(folder, f"{rank}.json"))
        if rank == 1:
            mine.per_sample = None
        mine.all_reduce().save(Path(folder, f"means-{rank}.json"))
        other = unsmooth.measure(_model(), _data()[rank::2], points="blocks.0.*" if rank else "blocks.1.*")
        try:  # as many numbers on both, of different points
            other.all_reduce()
        except unsmooth.UnsmoothError as error:
            Path(folder, f"refused-{rank}.txt").write_text(str(error))
        turned = replace(mine, cells=dict(reversed(mine.cells.items()))) if rank else mine
        turned.all_reduce().save(Path(folder, f"turned-{rank}.json"))
        ranked = unsmooth.measure(_model(), _data()[rank::2], RANK)
        if rank:
            ranked.second_moments = dict(reversed(ranked.second_moments.items()))
        replace(ranked, partial=bool(rank)).all_reduce().save(Path(folder, f"ranked-{rank}.json"))
        per_sample.MOST_VALUES = 5 * len(mine.cells)
        mine = unsmooth.measure(_model(), _data()[rank::2])
        assert mine.per_sample is not None
        assert mine.all_reduce().per_sample is None


def test_two_processes_measure_what_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    run_twice(_half, str(tmp_path))
    first, second = (unsmooth.load_measurement(tmp_path / f"{rank}.json") for rank in range(2))
    whole = unsmooth.measure(_model(), _data())
    assert first.cells == second.cells
    assert first.changes == second.changes
    for key, moments in whole.cells.items():
        assert first.cells[key].count == 6
        assert first.cells[key].mean == pytest.approx(moments.mean, rel=1e-5, abs=1e-7), key
        assert first.cells[key].std == pytest.approx(moments.std, rel=1e-4, abs=1e-7), key
    assert first.per_sample is not None
    assert second.per_sample is not None
    assert first.extremes == second.extremes
    assert first.extremes["embed"].log_ratio.count == first.samples
    assert (first.per_sample.keys == second.per_sample.keys).all()
    assert (first.per_sample.table == second.per_sample.table).all()
    assert pair(first, whole).why == "the same 6 inputs in both"
    assert unsmooth.compare(first, whole)["difference"].abs().max() < 1e-5
    assert first.about.data.batches == whole.about.data.batches == 3
    for rank in range(2):
        assert "measured different points" in (tmp_path / f"refused-{rank}.txt").read_text()
        assert unsmooth.load_measurement(tmp_path / f"turned-{rank}.json").cells == first.cells
        ranked = unsmooth.load_measurement(tmp_path / f"ranked-{rank}.json")
        assert ranked.partial  # one of them was
        for cell, moments in unsmooth.measure(_model(), _data(), RANK).cells.items():
            assert ranked.cells[cell].mean == pytest.approx(moments.mean, rel=1e-4), cell
        means = unsmooth.load_measurement(tmp_path / f"means-{rank}.json")
        assert (means.cells, means.per_sample) == (first.cells, None)
