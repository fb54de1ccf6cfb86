"""Measuring a model gives the numbers one gets by storing its features and computing them slowly."""

from __future__ import annotations

import gc
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from reference.metrics import entropy_rank, high_low_ratio, mean_cosine
from small_models import bert, images, vit, words
from torch import nn

import unsmooth
from unsmooth.analysis import Origin
from unsmooth.errors import UnsmoothError

SLOW = {"hfc_lfc": high_low_ratio, "cosine_similarity": mean_cosine, "effective_rank": entropy_rank}


def cell(measurement: unsmooth.Measurement, point: str, metric: str, tokens: str = "all") -> Any:
    frame = measurement.frame(full=True)
    (row,) = frame[(frame.point == point) & (frame.metric == metric) & (frame.tokens == tokens)].itertuples()
    return row


def test_every_block_output_agrees_with_stored_features() -> None:
    model, data = vit().eval(), images()
    stored: dict[int, list[torch.Tensor]] = {i: [] for i in range(3)}
    handles = [
        b.register_forward_hook(lambda m, a, out, i=i: stored[i].append(out)) for i, b in enumerate(model.blocks)
    ]
    with torch.no_grad():
        for batch in data:
            model(batch)
    for handle in handles:
        handle.remove()
    measurement = unsmooth.measure(model, data)
    for i, batches in stored.items():
        for metric, slow in SLOW.items():
            values = torch.tensor([float(slow(x.double())) for x in torch.cat(batches)], dtype=torch.float64)
            row = cell(measurement, f"blocks.{i}.post", metric)
            assert row.mean == pytest.approx(values.mean().item(), rel=1e-6), (i, metric)
            assert row.std == pytest.approx(values.std().item(), rel=1e-5), (i, metric)
            assert row.count == 6


def test_hidden_states_of_hugging_face_are_the_block_outputs() -> None:
    model, data = bert().eval(), words()
    measurement = unsmooth.measure(model, data, tokens="content", special_ids=[])
    with torch.no_grad():
        states = [model(**batch, output_hidden_states=True).hidden_states for batch in data]
    for i in range(2):
        kept = [
            x[: int(mask.sum())]
            for s, b in zip(states, data, strict=True)
            for x, mask in zip(s[i + 1], b["attention_mask"], strict=True)
        ]
        expected = sum(float(entropy_rank(x.double())) for x in kept) / len(kept)
        assert cell(measurement, f"blocks.{i}.post", "effective_rank", "content").mean == pytest.approx(
            expected, rel=1e-6
        )


def test_one_pass_serves_several_token_policies() -> None:
    model, data = vit(), images()
    together = unsmooth.measure(model, data, tokens="all,patches,no-outliers")
    for policy in ("all", "patches", "no-outliers"):
        alone = unsmooth.measure(model, data, tokens=policy)
        for key, moments in alone.cells.items():
            assert together.cells[key].mean == pytest.approx(moments.mean, rel=1e-9)
    assert cell(together, "blocks.1.post", "effective_rank", "patches").mean != pytest.approx(
        cell(together, "blocks.1.post", "effective_rank").mean
    )


def test_splitting_the_data_changes_nothing() -> None:
    model, data = vit(), images(4)
    whole = unsmooth.measure(model, data)
    singles = unsmooth.measure(model, [image[None] for batch in data for image in batch])
    halves = unsmooth.measure(model, data[:1]).merge(unsmooth.measure(model, data[1:]))
    for key, moments in whole.cells.items():
        for other in (singles, halves):
            assert other.cells[key].mean == pytest.approx(moments.mean, rel=1e-5, abs=1e-7)
            assert other.cells[key].count == moments.count
    for change, moments in whole.changes.items():
        assert halves.changes[change].std == pytest.approx(moments.std, rel=1e-6, abs=1e-12)


def test_the_model_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    model = vit().train()
    model.blocks[1].eval()
    modes = [m.training for m in model.modules()]
    weights = {k: v.clone() for k, v in model.state_dict().items()}

    def hooks() -> int:
        return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())

    unsmooth.measure(model, images())
    with pytest.raises(RuntimeError, match="broken data"):
        unsmooth.measure(model, _breaks(images()))
    assert [m.training for m in model.modules()] == modes
    assert hooks() == 0
    assert all(torch.equal(v, weights[k]) for k, v in model.state_dict().items())


def _breaks(data: list[torch.Tensor]) -> Any:
    yield data[0]
    raise RuntimeError("broken data")


def test_nothing_is_kept_but_accumulators() -> None:
    def live() -> int:
        gc.collect()
        return sum(issubclass(type(o), torch.Tensor) for o in gc.get_objects())

    model, batch = vit(), images(1)[0]
    with unsmooth.Measurer(model) as measurer:
        measurer.update(batch)
        before = live()
        for _ in range(5):
            measurer.update(batch)
        assert live() <= before


def test_low_precision_models_take_float32_images() -> None:
    model, data = vit(), images(1)
    exact = unsmooth.measure(model, data)
    rough = unsmooth.measure(vit_like(model).to(torch.bfloat16), data)
    for metric in SLOW:
        expected = cell(exact, "blocks.2.post", metric).mean
        assert cell(rough, "blocks.2.post", metric).mean == pytest.approx(expected, rel=0.05)


def vit_like(model: nn.Module) -> nn.Module:
    twin = vit()
    twin.load_state_dict(model.state_dict())
    return twin


def test_padding_in_all_tokens_is_said() -> None:
    with pytest.warns(UserWarning, match="inputs hold padding"):
        measurement = unsmooth.measure(bert(), words())
    assert any("padding" in note for note in measurement.notes)


def test_a_training_model_is_measured_without_its_dropout() -> None:
    model, data = vit(proj_drop_rate=0.5), images(1)
    assert unsmooth.measure(model.train(), data).cells == unsmooth.measure(model.eval(), data).cells


def test_what_the_caller_knows_is_kept_with_the_numbers(tmp_path: Path) -> None:
    measurement = unsmooth.measure(vit(), images(), origin=Origin(model="mine", data="noise"))
    assert (measurement.about.model.reference, measurement.about.data.reference) == ("mine", "noise")
    assert (measurement.about.model.weights, measurement.about.command) == (None, None)
    assert not measurement.partial
    assert unsmooth.load_measurement(measurement.save(tmp_path / "run.json")).about == measurement.about


def test_a_part_makes_the_whole_partial() -> None:
    whole = unsmooth.measure(vit(), images())
    part = replace(whole, partial=True)
    assert (whole.merge(part).partial, part.merge(whole).partial, whole.merge(whole).partial) == (True, True, False)


def test_tuples_are_read_as_input_and_label() -> None:
    model, data = vit(), images()
    labelled = unsmooth.measure(model, [(x, torch.zeros(2)) for x in data])
    assert labelled.cells.keys() == unsmooth.measure(model, data).cells.keys()


def test_the_frame_is_tidy_and_says_what_each_number_is() -> None:
    frame = unsmooth.measure(vit(), images(), metrics="paper,rankme").frame(full=True)
    assert list(frame.columns[:6]) == ["point", "metric", "tokens", "mean", "std", "count"]
    assert (frame["low"] <= frame["mean"]).all()
    assert frame["definition"].str.contains("per sample, then mean over samples").all()
    assert not frame.duplicated(["point", "metric", "tokens"]).any()
    assert frame[frame.point == "embed"]["layer"].isna().all()


def test_saved_and_loaded_measurements_are_equal(tmp_path: Path) -> None:
    measurement = unsmooth.measure(vit(), images(), tokens=["all", "patches"])
    path = measurement.save(tmp_path / "run.json")
    loaded = unsmooth.load_measurement(path)
    assert loaded.to_json() == measurement.to_json()
    assert loaded.frame().equals(measurement.frame())
    assert loaded.change_by_kind().equals(measurement.change_by_kind())
    about = json.loads(path.read_text())
    assert about["schema"] == "unsmooth.measurement/1"
    assert {"torch", "unsmooth", "timm"} <= about["versions"].keys()


def test_comparing_finds_the_point_that_changed() -> None:
    model, data = vit(), images(8)
    first = unsmooth.measure(model, data)
    assert not first.compare(unsmooth.measure(model, data))["differs"].any()
    with torch.no_grad():
        model.blocks[2].mlp.fc2.bias.add_(5.0)
    second = unsmooth.measure(model, data)
    assert first.compare(second).equals(unsmooth.compare(first, second))
    frame = unsmooth.compare(first, second).set_index(["point", "metric"])
    assert frame.loc[("blocks.2.post", "hfc_lfc"), "differs"]
    assert frame.loc[("blocks.2.post", "hfc_lfc"), "difference"] < 0
    assert not frame.loc[("blocks.1.post", "hfc_lfc"), "differs"]


def test_measurements_of_different_things_are_not_merged_or_compared() -> None:
    model, data = vit(), images()
    a, b = unsmooth.measure(model, data), unsmooth.measure(model, data, metrics="rankme")
    with pytest.raises(UnsmoothError, match="merged only if they hold the same"):
        a.merge(b)
    with pytest.raises(UnsmoothError, match="share no point"):
        unsmooth.compare(a, b)
