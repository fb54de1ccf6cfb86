"""A sweep leaves the model as it was, pairs its samples, and its file, table and figure say the same."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from small_models import colour_folder, images, text_model, vit
from torch import Tensor, nn

import unsmooth
from unsmooth.errors import CheckpointError, DataError, OptionError
from unsmooth.metrics.differences import paired_difference
from unsmooth.sources import ImageInput, LoadedModel
from unsmooth.sweeping import Task, knn_task, open_task, perplexity_task, retrieval_task

INPUTS = [torch.cat(images(2))]


def loss(model: nn.Module) -> Tensor:
    """One number for each input."""
    return model(INPUTS[0]).square().mean(1)


@pytest.fixture(scope="module")
def swept() -> tuple[nn.Module, unsmooth.Sweep]:
    model = vit()
    found = unsmooth.sweep(model, INPUTS, loss, edits=[{"high": 0.0}, {"scale": 0.0}], strengths=[1.0, 0.5])
    return model, found


def test_each_point_is_what_the_edited_model_gives(swept: tuple[nn.Module, unsmooth.Sweep]) -> None:
    model, found = swept
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert [p.strength for p in found.edits[0].points] == [0.0, 0.5, 1.0]
    with torch.no_grad():
        start = loss(model).double()
    for swept_edit, options in zip(found.edits, ({"high": 0.0}, {"scale": 0.0}), strict=True):
        for point in swept_edit.points[1:]:
            done = unsmooth.edit(model, **options, strength=point.strength)  # type: ignore[arg-type]
            with torch.no_grad():
                after = loss(model).double()
            measured = unsmooth.measure(model, INPUTS, "paper", "all", [found.about.settings.point])
            done.undo()
            gap = paired_difference(start.numpy(), after.numpy())
            assert point.score == pytest.approx(float(after.mean()), rel=1e-5)
            assert (point.difference, point.low) == pytest.approx((gap.mean, gap.low), rel=1e-3, abs=1e-7)
            ratio = next(m.mean for cell, m in measured.cells.items() if cell.metric == "hfc_lfc")
            assert point.smoothness["all"]["hfc_lfc"] == pytest.approx(ratio, rel=1e-5)
            size = math.hypot(*(row["size"] for row in done.rows))
            assert point.moved == pytest.approx(math.hypot(*(row["change"] for row in done.rows)) / size, rel=1e-4)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_file_frame_and_words_agree(swept: tuple[nn.Module, unsmooth.Sweep], tmp_path: Path) -> None:
    _, found = swept
    again = unsmooth.load(found.save(tmp_path / "sweep.json"))
    assert isinstance(again, unsmooth.Sweep)
    assert again.to_json() == found.to_json()
    frame = again.frame()
    row = frame[(frame["edit"] == "scale=0") & (frame["strength"] == 1)].iloc[0]
    start = frame.iloc[0]
    assert row["price"] == pytest.approx(row["difference"] / abs(row["hfc_lfc"] - start["hfc_lfc"]))
    assert "scale=0: HFC/LFC" in repr(again)
    assert f"{len(INPUTS[0])} samples" in repr(again)
    assert again.about.data.inputs == len(INPUTS[0])


def test_the_figure_shows_every_edit(swept: tuple[nn.Module, unsmooth.Sweep]) -> None:
    drawn = swept[1].plot().svg()
    assert "edit high=0, strength 0.5, 1" in drawn
    assert "edit scale=0" in drawn
    assert "lower is better" in drawn
    with pytest.raises(OptionError, match="token policy"):
        swept[1].plot("some")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda f: f["edits"][0]["points"].pop(0), "must begin with the unedited model"),
        (lambda f: f["edits"][0]["points"][1]["smoothness"].pop("all"), "no finite numbers for 'all'"),
        (lambda f: f["edits"].clear(), "must hold edits"),
        (lambda f: f["task"].pop("better"), "task.better is missing"),
        (lambda f: f["edits"][0]["points"][1].update(score="much"), "score must be float"),
    ],
)
def test_a_damaged_file_is_refused_by_name(
    swept: tuple[nn.Module, unsmooth.Sweep], tmp_path: Path, damage: Any, said: str
) -> None:
    found = swept[1].to_json()
    damage(found)
    path = tmp_path / "x.json"
    path.write_text(json.dumps(found))
    with pytest.raises(CheckpointError, match=said):
        unsmooth.load(path)


def test_a_task_may_give_one_number_and_bad_input_loses_nothing() -> None:
    model = vit()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = unsmooth.sweep(model, INPUTS, lambda m: 1.5, edits=[{"flip": True}], strengths=[1])
    assert (found.edits[0].points[1].low, found.task.samples) == (None, 1)
    assert not found.edits[0].points[1].significant
    calls: list[int] = []

    def failing(m: nn.Module) -> float:
        calls.append(1)
        return 1.0 if len(calls) == 1 else math.nan

    with pytest.raises(DataError, match="gave no finite number"):
        unsmooth.sweep(model, INPUTS, failing, strengths=[1])
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    wrong: Any = ({"loss": 1.0}, "the task 'loss' returned dict"), (None, "the task 'loss' returned NoneType")
    for returned, said in wrong:
        with pytest.raises(DataError, match=f"{said}: expected a number, or a tensor with one for each sample"):
            unsmooth.sweep(model, INPUTS, lambda m, found=returned: found)
    with pytest.raises(OptionError, match="a task is a function of the model that returns a loss, or a Task"):
        unsmooth.sweep(model, INPUTS, "knn")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="from 0 to 1"):
        unsmooth.sweep(model, INPUTS, loss, strengths=[2.0])
    with pytest.raises(OptionError, match="unknown option of an edit 'hihg'"):
        unsmooth.sweep(model, INPUTS, loss, edits=[{"hihg": 0.0}])
    with pytest.raises(OptionError, match="no edit"):
        unsmooth.sweep(model, INPUTS, loss, edits=[])
    with pytest.raises(OptionError, match="from 0 to 1"):
        unsmooth.sweep(model, INPUTS, loss, strengths=[math.nan, 1.0])
    calls.clear()
    with pytest.raises(OptionError, match="heads"):  # an edit that is refused is said before the others are swept
        unsmooth.sweep(model, INPUTS, failing, edits=[{"flip": True}, {"flip": True, "heads": [99]}])
    assert not calls
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


# The tasks that come with it.


def test_neighbours_find_classes_that_features_tell_apart(tmp_path: Path) -> None:
    class Mean(nn.Module):
        def __init__(self, blind: bool) -> None:
            super().__init__()
            self.blind, self.weight = blind, nn.Parameter(torch.zeros(1))

        def forward(self, x: Tensor) -> Tensor:
            return torch.ones(len(x), 3) if self.blind else x.mean((2, 3))

    loaded = LoadedModel(Mean(False), "mean", "images", image_input=ImageInput(16))
    task = knn_task(loaded, colour_folder(tmp_path), samples=12, bank=12, neighbours=3, batch_size=5)
    assert task.values(loaded.model).tolist() == [1.0] * 12  # type: ignore[union-attr]
    assert float(task.values(Mean(True)).mean()) < 0.5  # type: ignore[union-attr]
    assert "3 nearest of 12" in task.definition


def test_perplexity_is_the_models_own_loss(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("the cat sat on the mat a dog ran " * 4)
    loaded = text_model("LlamaForCausalLM")
    task = perplexity_task(loaded, tmp_path, samples=2, batch_size=1, max_length=8)
    with torch.no_grad():
        found = task.values(loaded.model)
        ids = torch.tensor([loaded.tokenizer("the cat sat on the mat a dog")["input_ids"]])
        own = loaded.model(input_ids=ids, labels=ids).loss
    assert found[0] == pytest.approx(float(own), rel=1e-5)  # type: ignore[index]
    for kind in ("LlamaModel", "RobertaForMaskedLM"):  # a head that guesses tokens which it has seen
        with pytest.raises(DataError, match="guesses no next token"):
            perplexity_task(text_model(kind), tmp_path)


@pytest.mark.parametrize("kind", ["LlamaModel", "LlamaForCausalLM", "RobertaForMaskedLM"])
def test_a_text_finds_itself_and_partners_count_once(tmp_path: Path, kind: str) -> None:
    rows = [{"q": t, "p": t} for t in ("the cat", "a dog ran", "on the mat")] + [{"q": "a", "p": "the cat"}]
    path = tmp_path / "x.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    loaded = text_model(kind)
    features = getattr(loaded.model, "base_model")  # noqa: B009  # without a head
    task = retrieval_task(loaded, path, ("p", "p"), batch_size=2)
    with torch.no_grad():
        found = task.values(loaded.model)
        vectors = [
            torch.nn.functional.normalize(features(torch.tensor([ids])).last_hidden_state[0].mean(0), dim=0)
            for ids in loaded.tokenizer(["the cat", "a dog ran", "on the mat"])["input_ids"]
        ]
    cosines = torch.stack(vectors) @ torch.stack(vectors).mT
    expected = -(20 * cosines).log_softmax(1).diagonal()
    torch.testing.assert_close(found, expected.double(), rtol=1e-4, atol=1e-5)
    assert float(torch.as_tensor(found).max()) < math.log(3)  # which guessing would have
    with pytest.raises(DataError, match="line 1: expected the fields 'q' and 'z'"):
        retrieval_task(loaded, path, ("q", "z"))
    for wrong in ("knn", "lunch:x", f"retrieval:{path}"):
        with pytest.raises(OptionError, match="unknown task"):
            open_task(wrong, loaded, samples=2)
    assert isinstance(open_task(f"retrieval:{path}:q,p", loaded, samples=3), Task)
