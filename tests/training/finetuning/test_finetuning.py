"""A study of fine-tuning: pairs share everything but the arm, runs are not repeated, claims follow from the files."""

from __future__ import annotations

import json
import math
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest
import torch
import transformers
from small_models import vit
from sweeping.test_sweep import folder, text_model

from unsmooth.control import adapter_of, bake, reparametrize, spectral_penalty
from unsmooth.control.adapter import adapters_of
from unsmooth.control.penalty import penalty_near, spectral_sides
from unsmooth.errors import CheckpointError, DataError, OptionError, UnknownModelError
from unsmooth.sources import ImageInput, LoadedModel
from unsmooth.training.finetuning import Arm, ImageJob, load_runs, run_study
from unsmooth.training.finetuning.arms import (
    ADDED_LR,
    EVERY,
    OutOfTimeError,
    arm_names,
    chosen_arms,
    fit,
    parameter_rates,
)
from unsmooth.training.finetuning.images import ImageSettings, augment, draw_views
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
    for name in ("plain", "adapter-sharpening", "penalty-smoothing", "penalty-sharpening-strong", "contranorm"):
        found = job.run(Arm(name, rank=2), seed=0)
        assert 0 <= found["score"] <= 1
        assert found["hfc_lfc_before"] != found["hfc_lfc_after"]
        assert 0 < found["acting_negative_energy_after"] < 1
    assert all(torch.equal(value, before[name]) for name, value in job.loaded.model.state_dict().items())


def test_a_model_with_a_head_is_fine_tuned_without_it(job: ImageJob) -> None:
    transformers = pytest.importorskip("transformers")
    shape = {"num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}
    headed = transformers.ViTForImageClassification(transformers.ViTConfig(image_size=16, patch_size=8, **shape))
    loaded = LoadedModel(headed.eval(), "headed", "images", image_input=ImageInput(16))
    splits = job.train, job.test
    model = ImageJob(loaded, "colours", ImageSettings(batch_size=6, precision="float32"), CPU, splits).build(0)
    assert type(model.encoder).__name__ == "ViTModel"
    assert model(job.look()[:2]).shape == (2, job.classes)


def test_a_run_is_its_seed(job: ImageJob) -> None:
    first, again, other = (job.run(Arm(), seed)["train_loss"] for seed in (1, 1, 2))
    assert first == again != other


def test_a_penalty_is_exact_where_it_looked_and_of_first_order_nearby() -> None:
    model = vit().double()
    near = Arm("penalty-sharpening").penalty_near(model)
    assert near is not None
    assert near().item() == spectral_penalty(model, "sharpening", folded=True).item()
    weight = model.blocks[0].attn.proj.weight  # type: ignore[index, union-attr]
    expected = torch.autograd.grad(spectral_penalty(model, "sharpening", folded=True), weight)[0]
    assert torch.equal(torch.autograd.grad(near(), weight)[0], expected)
    ratios = []
    for _ in range(7):
        direction, errors = torch.randn_like(weight), []
        for size in (1e-3, 1e-4):
            with torch.no_grad():
                weight += size * direction
            exact = spectral_penalty(model, "sharpening", folded=True).item()
            errors.append(abs(near().item() - exact))
            with torch.no_grad():
                weight -= size * direction
        ratios.append(errors[1] / errors[0])
    assert median(ratios) < 0.05  # of second order: a hundredth, unless an eigenvalue comes to its bound on the way
    assert Arm().penalty_near(model) is None


@pytest.mark.parametrize("mode", ["sharpening", "smoothing"])
def test_penalties_and_adapters_push_to_their_side(mode: str) -> None:
    side = -1 if mode == "smoothing" else 1
    model, arm, x = vit(), Arm(f"penalty-{mode}"), torch.randn(4, 3, 16, 16)
    old = list(model.parameters())
    before = spectral_penalty(model, mode).item()
    groups = parameter_rates(model, model, old, lr=1e-4, head_lr=0.0, weight_decay=0.0)
    fit(model, groups, model, arm, lambda step: 0 * model(x).sum(), 3 * EVERY)
    assert spectral_penalty(model, mode).item() < 0.5 * before
    sides = spectral_sides(bake(reparametrize(vit(), mode, form="symmetric")))
    assert sides["negative"] == (mode == "sharpening")
    assert sides[mode] < 1e-6 < sides["smoothing" if mode == "sharpening" else "sharpening"]
    model = vit()
    old = list(model.parameters())
    Arm(f"adapter-{mode}", rank=2, bound=0.5).apply(model, seed=0)
    groups = parameter_rates(model, model, old, lr=1e-3, head_lr=1e-3, weight_decay=0.0)
    fit(model, groups, model, Arm(), lambda step: model(x).square().mean(), 3)
    values = -side * adapter_of(model).eigenvalues().detach()
    assert bool((values >= 0).all() and (values > 0).any() and (values <= 0.5).all())


def test_a_strong_penalty_wins_against_a_task_that_pulls_the_other_way() -> None:
    after = {}
    for name in ("penalty-sharpening", "penalty-sharpening-strong"):
        torch.manual_seed(0)
        model = vit()
        before, pull = spectral_sides(model)["sharpening"], penalty_near(model, "sharpening")
        groups = parameter_rates(model, model, list(model.parameters()), lr=1e-4, head_lr=0.0, weight_decay=0.0)
        fit(model, groups, model, Arm(name), lambda step, pull=pull: -2 * pull(), EVERY)  # type: ignore[misc]
        after[name] = spectral_sides(model)["sharpening"] / before
    assert after["penalty-sharpening-strong"] < 1 < after["penalty-sharpening"]


def test_what_an_arm_adds_learns_faster_than_what_was_there(job: ImageJob) -> None:
    for name in ("plain", "adapter-sharpening", "adapter-sharpening-strong", "featscale"):
        model, arm = job.build(0), Arm(name, rank=2)
        old = list(model.encoder.parameters())  # type: ignore[union-attr]
        arm.apply(model.encoder, 0)  # type: ignore[arg-type]
        rates = {"lr": 1e-5, "head_lr": 0.1, "weight_decay": 0.5, "added_lr": arm.added_lr}
        groups = parameter_rates(model, model.encoder, old, **rates)  # type: ignore[arg-type]
        found: dict[float, int] = {}
        for group in groups:
            found[group["lr"]] = found.get(group["lr"], 0) + len(group["params"])
        assert found.pop(1e-5) == len(old)
        assert found.pop(0.1) == 2
        assert bool(found.pop(ADDED_LR * (10 if "strong" in name else 1), 0)) == (name != "plain")
        assert not found
    assert not adapters_of(job.loaded.model)


def test_pictures_are_moved_and_flipped_but_not_changed() -> None:
    pixels = torch.randint(1, 255, (64, 3, 8, 8), dtype=torch.uint8)
    found = augment(pixels, draw_views(64, 8, torch.Generator().manual_seed(0)))
    assert found.shape == pixels.shape
    straight = (found == pixels).flatten(1).all(1)
    flipped = (found == pixels.flip(-1)).flatten(1).all(1)
    assert 0 < int(straight.sum()) < 32
    assert 0 < int(flipped.sum()) < 32
    moved = next(i for i in range(64) if not straight[i] and not flipped[i])
    values = set(pixels[moved, 0].flatten().tolist()) | {0}
    assert set(found[moved, 0].flatten().tolist()) <= values


def test_a_layer_scale_of_either_sign_turns_no_side_round() -> None:
    """As in DINOv2: the bare weights lie on the other side of what acts, on which penalty and record are."""
    torch.manual_seed(0)
    model = vit(init_values=1.0)
    for block in model.blocks:  # type: ignore[union-attr]
        torch.nn.init.constant_(block.ls1.gamma, -1.0)
    bare, acting = (spectral_sides(model, folded=folded) for folded in (False, True))
    assert acting["negative_energy"] == pytest.approx(1 - bare["negative_energy"], abs=0.1)
    Arm("adapter-sharpening", rank=2).apply(model, seed=0)
    with torch.no_grad():
        adapter_of(model).psi.fill_(0.5)
    after = spectral_sides(model, folded=True)["negative_energy"]
    assert after > acting["negative_energy"]
    assert spectral_sides(model)["negative_energy"] < bare["negative_energy"]
    plain = bake(model)
    bare = Arm("penalty-sharpening-bare")
    assert bare.mode == "sharpening"
    assert bare.penalty_near(plain)().item() == spectral_penalty(plain, "sharpening").item()  # type: ignore[misc]
    near = Arm("penalty-sharpening").penalty_near(plain)
    assert near is not None
    assert near().item() == pytest.approx(spectral_sides(plain, folded=True)["sharpening"], rel=1e-4)
    with pytest.raises(OptionError, match="leave out `mode` and `folded`"):
        spectral_penalty(reparametrize(vit(), "sharpening"), folded=True)


class Scripted:
    """Scores by arm and seed, and a count of the runs."""

    name, unit, settings = "made-up", "accuracy", {"epochs": "1"}

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []

    def run(self, arm: Arm, seed: int, deadline: float = math.inf) -> dict[str, float]:
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


def test_no_run_is_made_without_its_pair(tmp_path: Path) -> None:
    """The first run of a job, plain, is often its longest: at the end others would fit into the time, of no use."""

    class Warming(Scripted):
        def run(self, arm: Arm, seed: int, deadline: float = math.inf) -> dict[str, float]:
            time.sleep(0.3 if not self.calls else 0)
            return super().run(arm, seed)

    warming, arms = Warming(), chosen_arms(["featscale"])
    run_study("m", [warming], arms, range(1), tmp_path, say=lambda said: None)
    run_study("m", [warming], arms, range(2), tmp_path, minutes=0.2 / 60, say=lambda said: None)
    assert warming.calls == [("plain", 0), ("featscale", 0)]


def test_other_models_and_settings_are_not_mixed(tmp_path: Path) -> None:
    scripted, said = Scripted(), []  # type: ignore[var-annotated]
    run_study("m", [scripted], chosen_arms([]), range(1), tmp_path, say=said.append)
    with pytest.raises(OptionError, match=r"made-up-plain-seed0.json was made with another model, m; give another"):
        run_study("other", [scripted], chosen_arms([]), range(1), tmp_path, say=said.append)
    scripted.settings = {"epochs": "2"}
    with pytest.raises(OptionError, match="another settings: epochs"):
        run_study("m", [scripted], chosen_arms([]), range(1), tmp_path, say=said.append)


def test_the_time_is_kept_and_what_was_cut_comes_out_the_same_later(job: ImageJob, tmp_path: Path) -> None:
    """A run that passes its time leaves no file; when it is made later it is what it would have been."""
    arms, said = chosen_arms(["penalty-sharpening"]), []  # type: ignore[var-annotated]
    whole = run_study("m", [job], arms, range(2), tmp_path / "whole", say=said.append)
    with pytest.raises(OutOfTimeError):
        job.run(Arm(), 0, deadline=time.monotonic())
    took = min(run.seconds for run in whole)  # the first run is often longer than all others together
    run_study("m", [job], arms, range(2), tmp_path / "parts", minutes=0.5 * took / 60, say=said.append)
    assert len(load_runs(tmp_path / "parts")) < 4
    parts = run_study("m", [job], arms, range(2), tmp_path / "parts", say=said.append)
    assert {run.file: run.scores for run in parts} == {run.file: run.scores for run in whole}


def test_an_arm_that_a_model_cannot_take_is_a_result(tmp_path: Path) -> None:
    class Refusing(Scripted):
        def run(self, arm: Arm, seed: int, deadline: float = math.inf) -> dict[str, float]:
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
    job = TextJob(text_model("LlamaModel"), tmp_path, "rte", how, CPU)
    for name in ("plain", "adapter-sharpening"):
        assert job.run(Arm(name, rank=2), seed=0)["score"] == 1.0
    loaded = text_model("LlamaModel")
    with pytest.raises(DataError, match="has no tokenizer beside its weights"):
        TextJob(replace(loaded, tokenizer=None), tmp_path, "rte", how, CPU)
    with pytest.raises(UnknownModelError, match="takes images: expected a text encoder"):
        TextJob(replace(loaded, modality="images"), tmp_path, "rte", how, CPU)
    few = transformers.BertConfig(
        vocab_size=loaded.vocabulary, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=15,
    )  # fmt: skip
    with pytest.raises(OptionError, match="has 15 positions, and RTE takes 16 tokens"):
        TextJob(replace(loaded, model=transformers.BertModel(few)), tmp_path, "rte", how, CPU)


def test_what_makes_no_sense_is_refused(job: ImageJob, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="unknown arm 'lunch'"):
        Arm("lunch")
    assert {"plain", "adapter-smoothing", "penalty-sharpening", "featscale"} <= set(arm_names())
    settings = ImageSettings(batch_size=100)
    with pytest.raises(DataError, match="fewer than a batch of 100"):
        ImageJob(job.loaded, folder(tmp_path), settings, CPU)
