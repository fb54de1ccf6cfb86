"""A study of fine-tuning: pairs share everything but the arm, runs are not repeated, claims follow from the files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from small_models import vit
from sweeping.test_sweep import folder, text_model
from torch import nn

from unsmooth.control import adapter_of
from unsmooth.control.adapter import adapters_of
from unsmooth.errors import CheckpointError, DataError, OptionError
from unsmooth.sources import ImageInput, LoadedModel
from unsmooth.training.finetuning import Arm, ImageJob, load_runs, run_study
from unsmooth.training.finetuning.arms import EVERY, arm_names, chosen_arms, fit
from unsmooth.training.finetuning.images import ImageSettings, augment
from unsmooth.training.finetuning.study import compared
from unsmooth.training.finetuning.text import TextJob
from unsmooth.training.tasks.superglue.finetune import FineTuning

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> ImageJob:
    """Pictures whose colour is their class, and a small model."""
    data = folder(tmp_path_factory.mktemp("data") / "colours", count=8)
    model = vit()
    model.reset_classifier(0)  # type: ignore[operator]
    loaded = LoadedModel(model.eval(), "tiny", "images", image_input=ImageInput(16))
    settings = ImageSettings(epochs=4, batch_size=6, lr=1e-3, head_lr=0.05, precision="float32")
    return ImageJob(loaded, data, settings, CPU)


def test_every_arm_trains_and_is_scored(job: ImageJob) -> None:
    before = {name: value.clone() for name, value in job.loaded.model.state_dict().items()}
    for name in ("plain", "adapter-sharpening", "penalty-smoothing", "contranorm"):
        found = job.run(Arm(name, rank=2), seed=0)
        assert 0 <= found["score"] <= 1
        assert found["hfc_lfc_before"] != found["hfc_lfc_after"]
    assert all(torch.equal(value, before[name]) for name, value in job.loaded.model.state_dict().items())


def test_a_run_is_its_seed(job: ImageJob) -> None:
    first, again, other = (job.run(Arm(), seed)["train_loss"] for seed in (1, 1, 2))
    assert first == again != other


def test_penalty_and_adapter_push_to_their_side() -> None:
    from unsmooth.control import spectral_penalty

    model = vit()
    arm = Arm("penalty-sharpening")
    assert arm.penalty(model, 1) is None
    found, expected = arm.penalty(model, EVERY), spectral_penalty(model, "sharpening")
    assert found is not None
    assert found.item() == pytest.approx(EVERY * expected.item())
    model = vit()
    Arm("adapter-smoothing", rank=2, bound=0.5).apply(model, seed=0)
    x = torch.randn(4, 3, 16, 16)
    fit(model, model, Arm(), lambda step: model(x).square().mean(), 3, lr=1e-3, head_lr=1e-3, weight_decay=0.0)
    values = adapter_of(model).eigenvalues().detach()
    assert bool((values >= 0).all() and (values > 0).any() and (values <= 0.5).all())
    plain = vit()
    Arm().apply(plain, seed=0)
    assert not adapters_of(plain)


def test_pictures_are_moved_and_flipped_but_not_changed() -> None:
    pixels = torch.randint(1, 255, (64, 3, 8, 8), dtype=torch.uint8)
    found = augment(pixels, torch.Generator().manual_seed(0))
    assert found.shape == pixels.shape
    straight = (found == pixels).flatten(1).all(1)
    flipped = (found == pixels.flip(-1)).flatten(1).all(1)
    assert 0 < int(straight.sum()) < 32
    assert 0 < int(flipped.sum()) < 32
    moved = next(i for i in range(64) if not straight[i] and not flipped[i])
    values = set(pixels[moved, 0].flatten().tolist()) | {0}
    assert set(found[moved, 0].flatten().tolist()) <= values


class Scripted:
    """Scores by arm and seed, and a count of the runs."""

    name, unit = "made-up", "accuracy"

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []

    def run(self, arm: Arm, seed: int) -> dict[str, Any]:
        self.calls.append((arm.name, seed))
        return {"score": 0.5 + 0.01 * seed + (0.02 + 0.0001 * seed if arm.name != "plain" else 0)}


def test_runs_are_kept_resumed_and_compared(tmp_path: Path) -> None:
    scripted, arms = Scripted(), chosen_arms(["adapter-sharpening", "featscale"])
    said: list[str] = []
    assert run_study("m", [scripted], arms, range(2), tmp_path, minutes=0, say=said.append) == []
    run_study("m", [scripted], arms, range(1), tmp_path, say=said.append)
    runs = run_study("m", [scripted], arms, range(3), tmp_path, say=said.append)
    assert len(set(scripted.calls)) == len(scripted.calls) == 9
    assert scripted.calls[:3] == [("plain", 0), ("adapter-sharpening", 0), ("featscale", 0)]  # pairs come first
    found = {each.name: each for each in compared(runs, "made-up")}
    assert found["featscale"].difference.mean == pytest.approx(2.01)
    assert found["featscale"].family == 2
    assert "featscale is above plain" in found["featscale"].claim()
    assert load_runs(tmp_path) == sorted(runs, key=lambda run: run.file)
    damaged = tmp_path / runs[0].file
    damaged.write_text(json.dumps({**json.loads(damaged.read_text()), "seed": "one"}))
    with pytest.raises(CheckpointError, match="seed must be int"):
        load_runs(tmp_path)


def test_an_arm_that_a_model_cannot_take_is_a_result(tmp_path: Path) -> None:
    class Refusing(Scripted):
        def run(self, arm: Arm, seed: int) -> dict[str, Any]:
            from unsmooth.errors import WeightsError

            if arm.name != "plain":
                raise WeightsError("no room")
            return super().run(arm, seed)

    runs = run_study("m", [Refusing()], chosen_arms(["gfsa"]), range(2), tmp_path, say=lambda said: None)
    assert {run.failed for run in runs if run.arm == "gfsa"} == {"no room"}
    assert compared(runs, "made-up") == []


def test_a_text_encoder_is_fine_tuned(tmp_path: Path) -> None:
    task = tmp_path / "RTE"
    task.mkdir()
    for split in ("train", "val"):
        rows = [{"premise": "the cat sat", "hypothesis": "a dog ran" if i % 2 else "the cat", "idx": i,
                 "label": "not_entailment" if i % 2 else "entailment"} for i in range(8)]  # fmt: skip
        (task / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    how = FineTuning(lr=3e-3, batch_size=4, precision="float32", epochs=12, length=16)
    job = TextJob(text_model(causal=False), tmp_path, "rte", how, CPU)
    for name in ("plain", "adapter-sharpening"):
        assert job.run(Arm(name, rank=2), seed=0)["score"] == 1.0


def test_what_makes_no_sense_is_refused(job: ImageJob, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="unknown arm 'lunch'"):
        Arm("lunch")
    assert {"plain", "adapter-smoothing", "penalty-sharpening", "featscale"} <= set(arm_names())
    settings = ImageSettings(batch_size=100)
    with pytest.raises(DataError, match="fewer than a batch of 100"):
        ImageJob(job.loaded, folder(tmp_path), settings, CPU)
    assert isinstance(job.loaded.model, nn.Module)
