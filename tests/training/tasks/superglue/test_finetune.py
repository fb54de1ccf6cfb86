"""Fine-tuning learns, by kernels and graphs as without, and leaves the model as it was."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch

from unsmooth.sources import LoadedModel
from unsmooth.training.engine.step import Speed
from unsmooth.training.tasks.superglue.classifier import FastFeatures, PairClassifier, copied_encoder, new_head
from unsmooth.training.tasks.superglue.evaluation import evaluate_superglue
from unsmooth.training.tasks.superglue.examples import TASKS, read_examples
from unsmooth.training.tasks.superglue.finetune import FineTuner, FineTuneTask, FineTuning, Split
from unsmooth.training.tasks.text.model import build_model
from unsmooth.training.tasks.text.recipe import RECIPES

HOW = FineTuning(lr=3e-3, batch_size=8, epochs=8, length=16, precision="float32")


@pytest.mark.parametrize("name", ["RTE", "COPA"])
def test_an_encoder_learns_a_task_that_can_be_learned(folder: Path, loaded: LoadedModel, name: str) -> None:
    found = evaluate_superglue(loaded, folder, [TASKS[name]], how=HOW, seeds=2, device="cpu")
    mean, spread, count = found.mean(name)
    assert mean > 0.95
    assert count == 2
    assert spread < 0.1
    assert found.majority[name]["score"] == 0.5
    assert found.average == mean


def splits(folder: Path, loaded: LoadedModel, length: int = 16) -> list[Split]:
    return [
        Split.of(read_examples(folder, TASKS["RTE"], split), loaded.tokenizer, length) for split in ("train", "val")
    ]


def test_a_seed_scores_the_same_after_another_one(folder: Path, loaded: LoadedModel) -> None:
    """What is compiled and captured stays; the model, its head and the optimiser start anew."""
    how = FineTuning(lr=3e-4, batch_size=8, epochs=2, length=16, precision="float32")
    tuner = FineTuner(loaded.model, TASKS["RTE"], *splits(folder, loaded), how, torch.device("cpu"))
    first, other, again = (tuner.run(seed) for seed in (0, 1, 0))
    assert first == again
    assert first["loss"] != other["loss"]
    assert tuner.milliseconds > 0
    fresh = FineTuner(loaded.model, TASKS["RTE"], *splits(folder, loaded), how, torch.device("cpu"))
    assert fresh.run(1) == other


def test_the_time_of_a_run_of_one_epoch_is_known(folder: Path, loaded: LoadedModel) -> None:
    """Its only epoch was left out, as the first of several is: other tasks then seemed to cost nothing."""
    how, slow = FineTuning(batch_size=8, epochs=1, length=16, precision="float32"), 0.02
    loaded.model.get_input_embeddings().register_forward_pre_hook(lambda *_: time.sleep(slow))
    tuner = FineTuner(loaded.model, TASKS["RTE"], *splits(folder, loaded), how, torch.device("cpu"))
    tuner.run(0)
    assert tuner.milliseconds >= 1e3 * slow
    assert tuner.seconds >= 6 * slow


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.filterwarnings("ignore:The .grad attribute")  # the compiler looks at it
@pytest.mark.parametrize("length", [24, 160])  # one tile, and longer
def test_kernels_fine_tune_as_hugging_face_does(folder: Path, tokenizer: Any, length: int) -> None:
    """Captured, with our kernels, in bfloat16, beside the encoder as it is in float32."""
    recipe = RECIPES["small-text"].override(["depth=2", "width=64", "heads=2", "inner=64"])
    model = LoadedModel(build_model(recipe, len(tokenizer), tokenizer, 0).eval(), "tiny", "text", tokenizer=tokenizer)
    found = []
    for precision in ("bf16", "float32"):
        how = FineTuning(lr=1e-3, batch_size=8, epochs=6, length=length, precision=precision)
        tuner = FineTuner(model.model, TASKS["RTE"], *splits(folder, model, length), how, torch.device("cuda"))
        assert isinstance(tuner.trainer.fast, FastFeatures) == (precision == "bf16")
        found.append([tuner.run(seed) for seed in (0, 1, 0)])
        assert found[-1][0]["loss"] == pytest.approx(found[-1][2]["loss"], rel=1e-2)
    assert [run["loss"] for run in found[0]] == pytest.approx([run["loss"] for run in found[1]], rel=0.3, abs=0.05)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("copies", [True, False])
def test_a_step_that_no_graph_can_hold_is_run_as_it_is(folder: Path, loaded: LoadedModel, copies: bool) -> None:
    """MPNet's mask copied a constant from the host in every step; BERT's asks only where nothing is recorded."""
    if copies:
        loaded.model.get_input_embeddings().register_forward_pre_hook(lambda *_: (torch.zeros(1).cuda(), None)[1])
    how = FineTuning(lr=1e-3, batch_size=8, epochs=4, length=16, precision="float32")
    runs = []
    for speed in (Speed(compile_mode=None), Speed(compile_mode=None, graph=False)):
        tuner = FineTuner(loaded.model, TASKS["RTE"], *splits(folder, loaded), how, torch.device("cuda"), speed)
        runs.append([tuner.run(seed)["loss"] for seed in (0, 1, 0)])
        assert tuner.trainer.graphed == (speed.graph and not copies)
    assert runs[0] == pytest.approx(runs[1], rel=1e-3)


def test_the_model_itself_is_not_changed(folder: Path, loaded: LoadedModel) -> None:
    before = {name: t.clone() for name, t in loaded.model.state_dict().items()}
    evaluate_superglue(loaded, folder, [TASKS["RTE"]], how=FineTuning(epochs=1, length=16), seeds=1, device="cpu")
    assert all(torch.equal(before[name], t) for name, t in loaded.model.state_dict().items())


def test_every_epoch_holds_other_batches_and_a_seed_repeats_them(loaded: LoadedModel, folder: Path) -> None:
    task = TASKS["RTE"]
    train, val = (Split.of(read_examples(folder, task, split), loaded.tokenizer, 16) for split in ("train", "val"))
    model = PairClassifier(copied_encoder(loaded.model), new_head(16, task, 0))
    one, two, other = (FineTuneTask(task, model, train, val, HOW, seed).stream(0) for seed in (0, 0, 1))
    first = next(one)
    assert torch.equal(first["ids"], next(two)["ids"])
    assert not torch.equal(first["ids"], next(other)["ids"])
    assert not torch.equal(first["ids"], next(one)["ids"])
    assert first["labels"].shape == (6, 8)
