"""Models that write to what they are given, forward passes that fail, masks of pairs, and threads."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from small_models import bert, images, vit
from torch import nn

import unsmooth
from unsmooth.analysis.measuring.cells import Cell
from unsmooth.errors import FeatureError, ForwardError
from unsmooth.models.inputs import padding_of


def block_in_place(block: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """timm's block, adding to its own input."""
    x += block.drop_path1(block.ls1(block.attn(block.norm1(x))))
    x += block.drop_path2(block.ls2(block.mlp(block.norm2(x))))
    return x


def pair() -> tuple[nn.Module, nn.Module]:
    """The same weights, once adding out of place and once in place."""
    plain, writing = vit(), vit()
    writing.load_state_dict(plain.state_dict())
    for block in writing.blocks:
        block.forward = lambda x, block=block, **_: block_in_place(block, x)
    return plain, writing


def test_blocks_that_add_in_place_are_measured_as_those_that_do_not() -> None:
    plain, writing = pair()
    data = images(2)
    expected, found = (
        unsmooth.measure(model, data, "hfc_lfc,cosine_similarity", "all,patches") for model in (plain, writing)
    )
    assert found.cells.keys() == expected.cells.keys()
    for cell, moments in expected.cells.items():
        assert found.cells[cell].mean == pytest.approx(moments.mean, rel=1e-5), cell
    ends = [expected.cells[Cell(f"blocks.0.{name}", "hfc_lfc", "all")].mean for name in ("pre", "mid", "post")]
    assert len({round(value, 6) for value in ends}) == 3


def test_they_are_attributed_alike() -> None:
    plain, writing = pair()
    data = images(1)
    here, there = (unsmooth.attribute(model, data).frame()["mean"].to_numpy() for model in (plain, writing))
    assert here == pytest.approx(there, abs=1e-5)


def test_watching_them_gives_the_same_readings() -> None:
    plain, writing = pair()
    probe = images(1)[0]
    readings = []
    for model in (plain, writing):
        watcher = unsmooth.watch(model, probe, 1, count="manual", points="residual")
        with watcher:
            watcher.step()
        readings.append([reading.values() for reading in watcher.history])
    for here, there in zip(*readings, strict=True):
        assert there == pytest.approx(here, rel=1e-5)


class Writing(nn.Module):
    """A model that changes its input."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = vit()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x.mul_(1.5).add_(0.1)
        return self.inner(x)


def test_a_model_that_writes_to_its_input_leaves_the_batch_alone() -> None:
    model, probe = Writing(), images(1)[0]
    before = probe.clone()
    with unsmooth.watch(model, probe, 1, count="manual") as watcher:
        for _ in range(3):
            watcher.step()
    assert torch.equal(probe, before)
    values = [reading.values() for reading in watcher.history]
    assert all(value == values[0] for value in values)
    assert [list(r.measurement.per_sample.keys) for r in watcher.history] == 4 * [  # type: ignore[union-attr]
        list(unsmooth.measure(vit(), [before]).per_sample.keys)  # type: ignore[union-attr]
    ]


def test_inference_mode_measures_the_same() -> None:
    plain, writing = pair()
    data = images(1)
    expected = unsmooth.measure(plain, data, "hfc_lfc").cells
    with torch.inference_mode():
        found = unsmooth.measure(writing, data, "hfc_lfc").cells
    assert {cell: moments.mean for cell, moments in found.items()} == pytest.approx(
        {cell: moments.mean for cell, moments in expected.items()}, rel=1e-5
    )


@pytest.mark.parametrize("kind", ["bool", "added", "causal", "three"])
def test_masks_of_pairs_tell_padding(kind: str) -> None:
    kept = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], dtype=torch.bool)
    pairs = kept[:, None, None, :].expand(2, 1, 5, 5)
    if kind == "causal":
        pairs = pairs & torch.ones(5, 5, dtype=torch.bool).tril()
    mask: Any = (
        pairs if kind != "added" else torch.zeros(2, 1, 5, 5).masked_fill(~pairs, torch.finfo(torch.float32).min)
    )
    mask = mask[:, 0] if kind == "three" else mask
    found = padding_of({"attention_mask": mask})
    assert found is not None
    assert torch.equal(found, ~kept)


def test_padding_under_a_mask_of_pairs_is_no_content() -> None:
    model = bert()
    ids = torch.randint(50, (2, 6))
    flat = torch.tensor([[1] * 6, [1] * 4 + [0] * 2])
    added = torch.zeros(2, 1, 6, 6).masked_fill(flat[:, None, None, :] == 0, torch.finfo(torch.float32).min)
    expected, found = (
        unsmooth.measure(model, [{"input_ids": ids, "attention_mask": mask}], tokens="content", special_ids=[])
        for mask in (flat, added)
    )
    cell = Cell("blocks.1.post", "hfc_lfc", "content")
    assert found.cells[cell].mean == pytest.approx(expected.cells[cell].mean, rel=1e-5)
    with pytest.warns(UserWarning, match="hold padding"):
        whole = unsmooth.measure(model, [{"input_ids": ids, "attention_mask": flat}], "hfc_lfc", "all")
    assert whole.cells[cell._replace(tokens="all")].mean != pytest.approx(found.cells[cell].mean, rel=1e-3)


def test_a_mask_that_does_not_tell_is_refused() -> None:
    opened = torch.ones(1, 1, 4, 4, dtype=torch.bool).tril()
    opened[..., 2:, :] = True  # rows of padding that see everything, so that no softmax is empty
    with pytest.raises(FeatureError, match=r"does not say which tokens are padding.*\(batch, token\)"):
        padding_of({"attention_mask": opened})


def test_after_a_failed_forward_a_measurer_goes_on() -> None:
    model, data = vit(), images(2)
    with unsmooth.Measurer(model) as measurer:
        measurer.update(data[0])
        for bad in (torch.randn(2, 3, 5, 5), torch.full((2, 3, 16, 16), torch.nan)):
            with pytest.raises((ForwardError, FeatureError)):
                measurer.update(bad)
        measurer.update(data[1])
    assert measurer.result().cells == unsmooth.measure(model, data).cells
    assert measurer.result().samples == 4


def test_running_out_of_memory_in_the_middle_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    model, data = vit(), images(2)
    with unsmooth.Measurer(model) as measurer:
        with monkeypatch.context() as patch:

            def fail(*_: Any, **__: Any) -> None:
                raise torch.OutOfMemoryError("no room")

            patch.setattr(model.blocks[1].mlp, "forward", fail)
            with pytest.raises(ForwardError, match="smaller batches"):
                measurer.update(data[0])
        for batch in data:
            measurer.update(batch)
    assert measurer.result().cells == unsmooth.measure(model, data).cells


def test_two_threads_leave_the_fast_path_as_it_was() -> None:
    before = torch.backends.mha.get_fastpath_enabled()
    assert before
    first_in, second_in = threading.Event(), threading.Event()

    def one() -> None:
        with unsmooth.Measurer(vit(), "hfc_lfc"):
            first_in.set()
            assert second_in.wait(30)

    def two() -> None:
        assert first_in.wait(30)
        with unsmooth.Measurer(vit(), "hfc_lfc"):
            second_in.set()
            thread.join(30)  # the first leaves while the second is inside
            assert not torch.backends.mha.get_fastpath_enabled()

    thread = threading.Thread(target=one)
    other = threading.Thread(target=two)
    thread.start()
    other.start()
    other.join(60)
    assert torch.backends.mha.get_fastpath_enabled() is before
