"""Accuracy and calibration, against the obvious way."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.training import expected_calibration_error
from torch import nn

from unsmooth.errors import CheckpointError
from unsmooth.training import Evaluation, TrainingRecord
from unsmooth.training.tasks.images import evaluation
from unsmooth.training.tasks.images.corruptions import apply, corrupt
from unsmooth.training.tasks.images.data import load_images
from unsmooth.training.tasks.images.evaluation import corrupted_accuracy
from unsmooth.training.tasks.images.model import build_model
from unsmooth.training.tasks.images.recipe import ImageRecipe
from unsmooth.training.tasks.images.scores import calibration_error, evaluate, logits_of


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=60))
@settings(deadline=None, max_examples=60)
def test_calibration_error_equals_the_loop_over_bins(pairs: list[tuple[float, bool]]) -> None:
    confidence, right = (torch.tensor(v) for v in zip(*pairs, strict=True))
    confidence = confidence.double()
    assert calibration_error(confidence, right) == pytest.approx(
        expected_calibration_error(confidence.tolist(), right.tolist()), abs=1e-9
    )


def test_calibration_error_is_torchmetrics() -> None:
    functional = pytest.importorskip("torchmetrics.functional.classification")
    logits, labels = 3 * torch.randn(500, 10), torch.randint(0, 10, (500,))
    confidence, guess = logits.softmax(-1).max(-1)
    theirs = functional.multiclass_calibration_error(logits.softmax(-1), labels, num_classes=10, n_bins=15)
    assert calibration_error(confidence, guess == labels) == pytest.approx(float(theirs), abs=1e-6)


def test_a_sure_and_right_model_is_calibrated() -> None:
    assert calibration_error(torch.ones(5), torch.ones(5, dtype=torch.bool)) == 0
    assert calibration_error(torch.ones(5), torch.zeros(5, dtype=torch.bool)) == 1


class Oracle(nn.Module):
    """Names the class that the mean colour tells, or always the first."""

    def __init__(self, right: bool) -> None:
        super().__init__()
        self.right = nn.Parameter(torch.tensor(float(right)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        red, green, blue = x.mean((2, 3)).unbind(-1)
        tints = torch.stack([blue - red, red - blue, green - red, red - green], -1)
        return tints * self.right * 50 + (1 - self.right) * torch.eye(4)[0]


class Fickle(Oracle):
    """Another class with every pixel that changes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.eye(4)[x.double().abs().sum((1, 2, 3)).long() % 4]


def test_accuracy_counts_what_is_right(tiny_data: Path, tiny_recipe: ImageRecipe) -> None:
    test = load_images(tiny_data, "test")
    assert evaluate(Oracle(True), test.pixels, test.labels, tiny_recipe).accuracy > 0.7
    blind = evaluate(Oracle(False), test.pixels, test.labels, tiny_recipe)
    assert blind.accuracy == 0.25
    assert blind.images == len(test)


def test_loss_and_calibration_are_those_of_the_scores(tiny_data: Path, tiny_recipe: ImageRecipe) -> None:
    """Scores (1, 0, 0, 0) for every image, a quarter of which are of the first class."""
    test = load_images(tiny_data, "test")
    found = evaluate(Oracle(False), test.pixels, test.labels, tiny_recipe)
    total = math.e + 3
    assert found.loss == pytest.approx(math.log(total) - 0.25, rel=1e-6)
    assert found.calibration_error == pytest.approx(math.e / total - 0.25, rel=1e-6)
    assert found.as_dict() == {
        "accuracy": found.accuracy, "loss": found.loss, "calibration_error": found.calibration_error, "images": 16,
    }  # fmt: skip


def test_corrupted_accuracy_is_that_of_each_set_and_their_mean(
    tiny_data: Path, tiny_recipe: ImageRecipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = ("gaussian_noise", "contrast", "fog")
    for module in (evaluation, apply):
        monkeypatch.setattr(module, "CORRUPTIONS", {name: apply.CORRUPTIONS[name] for name in kinds})
    model, test, told = Fickle(True), load_images(tiny_data, "test"), []
    found = corrupted_accuracy(model, test, tiny_recipe, seed=3, progress=lambda *step: told.append(step))
    assert told == [(number, 15) for number in range(1, 16)]
    assert (found["name"], found["seed"]) == ("regenerated CIFAR-100-C", 3)
    for severity in ("1", "2", "3", "4", "5"):
        accuracies = []
        for name in kinds:
            pixels = corrupt(test.pixels, name, int(severity), 3)
            accuracies.append(evaluate(model, pixels, test.labels, tiny_recipe).accuracy)
            assert found["accuracy"][name][severity] == accuracies[-1]
        assert found["mean"][severity] == pytest.approx(sum(accuracies) / 3)
    assert len({found["mean"][severity] for severity in found["mean"]}) > 1


def test_batches_do_not_change_the_scores_and_the_mode_is_kept(tiny_data: Path, tiny_recipe: ImageRecipe) -> None:
    model = build_model(tiny_recipe.override(["drop_path=0.5"]), 0).train()
    pixels = load_images(tiny_data, "test").pixels
    a, b = (logits_of(model, pixels, tiny_recipe, batch_size=n) for n in (3, 100))
    torch.testing.assert_close(a, b)
    assert model.training
    logits_of(model.eval(), pixels, tiny_recipe)
    assert not model.training


RECORDS = Path(__file__).parents[4] / "zoo" / "records"


@pytest.mark.parametrize("path", sorted(RECORDS.glob("*.json")), ids=lambda path: path.stem)
def test_every_record_of_the_zoo_is_read_and_written_as_it_is(path: Path) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    if path.stem.endswith(".corruptions"):
        assert Evaluation.load(path).to_json() == content
        return
    if content["schema"] != "unsmooth-record/1":
        pytest.skip("a file of another kind")
    record = TrainingRecord.load(path)
    written = record.to_json()
    assert {key: written[key] for key in content} == content
    assert set(written) - set(content) <= {"subset", "weights", "data_hash", "speed"}  # what older records do not know
    assert record.rows[-1]["epoch"] == content["epochs"][-1]["epoch"]


def test_an_evaluation_is_read_as_it_was_written_and_other_files_are_refused(tmp_path: Path) -> None:
    path = next(RECORDS.glob("*.corruptions.json"))
    found = Evaluation.load(path)
    found.save(tmp_path / "found.json")
    assert Evaluation.load(tmp_path / "found.json") == found
    content = json.loads(path.read_text())
    for broken in ({**content, "clean": 3}, {k: v for k, v in content.items() if k != "clean"}, {}):
        (tmp_path / "broken.json").write_text(json.dumps(broken))
        with pytest.raises(CheckpointError, match="is no evaluation that `unsmooth evaluate --out` wrote"):
            Evaluation.load(tmp_path / "broken.json")
