"""One run of a job: on pictures or text, with every arm, the same for the same seed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers
from small_models import colour_folder, text_model

from unsmooth.errors import DataError, OptionError, UnknownModelError
from unsmooth.sources import ImageInput, LoadedModel
from unsmooth.training.finetuning import Arm, ImageJob
from unsmooth.training.finetuning.images import ImageSettings, augment, draw_views
from unsmooth.training.finetuning.text import TextJob
from unsmooth.training.tasks.superglue.finetune import FineTuning

CPU = torch.device("cpu")


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


def test_settings_say_what_a_cpu_computes_in(job: ImageJob) -> None:
    asked = ImageSettings(batch_size=6, precision="bf16")
    assert ImageJob(job.loaded, "colours", asked, CPU, (job.train, job.test)).settings["precision"] == "float32"


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


def write_task(folder: Path) -> None:
    """RTE in a few pairs that can be told apart."""
    task = folder / "RTE"
    task.mkdir()
    for split in ("train", "val"):
        rows = [{"premise": "the cat sat", "hypothesis": "a dog ran" if i % 2 else "the cat", "idx": i,
                 "label": "not_entailment" if i % 2 else "entailment"} for i in range(8)]  # fmt: skip
        (task / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)))


def test_a_text_encoder_is_fine_tuned(tmp_path: Path) -> None:
    write_task(tmp_path)
    how = FineTuning(lr=3e-3, batch_size=4, epochs=12, length=16)
    job = TextJob(text_model("LlamaModel"), tmp_path, "rte", how, CPU)
    assert job.settings["precision"] == "float32"  # the default is bfloat16, which no CPU is asked for
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


def test_the_warm_up_is_as_long_as_the_settings_say(tmp_path: Path) -> None:
    """Every run had a tenth, whatever its file said."""
    write_task(tmp_path)
    losses = {}
    for share in (0.1, 1.0):
        how = FineTuning(lr=1e-2, batch_size=4, epochs=10, length=16, warmup=share)
        job = TextJob(text_model("LlamaModel"), tmp_path, "RTE", how, CPU)
        assert job.settings["warmup"] == str(share)
        losses[share] = job.run(Arm(), seed=0)["train_loss"]
    assert losses[0.1] != losses[1.0]


def test_fewer_pictures_than_a_batch_are_refused(job: ImageJob, tmp_path: Path) -> None:
    settings = ImageSettings(batch_size=100)
    with pytest.raises(DataError, match="fewer than a batch of 100"):
        ImageJob(job.loaded, colour_folder(tmp_path), settings, CPU)
