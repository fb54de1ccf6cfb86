"""What can happen to a finished or running training from outside, and what it then says."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image
from processes import CLI, Program
from training.conftest import TINY, make_images

from unsmooth.errors import CheckpointError
from unsmooth.training import Run, TrainingRecord, evaluate_trained, load_trained, train
from unsmooth.training.engine.checkpoint import CURRENT, PREVIOUS, Keeper
from unsmooth.training.tasks.images import ImageRecipe

QUIET = {"device": "cpu", "tensorboard": False}
CHANGES = [word for change in TINY for word in ("--set", change)]


@pytest.fixture(scope="module")
def run(tiny_recipe: ImageRecipe) -> Run:
    return Run(tiny_recipe.override(["epochs=3"]))


@pytest.fixture(scope="module")
def ended(run: Run, tiny_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ended")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Keeper, "SMALL", math.inf)  # on a busy machine one takes seconds, and the next is left out
        train(run, tiny_data, folder, **QUIET)
    return folder


@pytest.fixture
def folder(ended: Path, tmp_path: Path) -> Path:
    """A copy of a finished run, to break."""
    shutil.copytree(ended, tmp_path / "run")
    return tmp_path / "run"


def flip_a_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-7] ^= 4
    file.write_bytes(content)


def test_a_flipped_bit_in_the_weights_is_noticed_and_mended_by_the_same_command(
    run: Run, tiny_data: Path, folder: Path
) -> None:
    before = (folder / "model.safetensors").read_bytes()
    flip_a_bit(folder / "model.safetensors")
    with pytest.raises(CheckpointError, match="was changed after it was written"):
        evaluate_trained(str(folder), tiny_data)
    train(run, tiny_data, folder, **QUIET)
    assert (folder / "model.safetensors").read_bytes() == before
    flip_a_bit(folder / "model.safetensors")
    for name in (CURRENT, PREVIOUS):
        (folder / name).unlink()
    with pytest.raises(CheckpointError, match=r"model.safetensors was changed after it was written: restore it, or"):
        train(run, tiny_data, folder, **QUIET)


def test_the_record_holds_the_hash_of_the_weights(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    assert TrainingRecord.load(folder).weights == config["weights"]


def test_log_rows_that_were_lost_before_a_resume_are_said(run: Run, tiny_data: Path, folder: Path) -> None:
    assert "missing_epochs" not in json.loads((folder / "record.json").read_text())
    for name in ("record.json", "model.safetensors", "config.json"):
        (folder / name).unlink()
    lines = (folder / "log.jsonl").read_text().splitlines(keepends=True)
    (folder / "log.jsonl").write_text(lines[1])  # the first is gone, and what came after the second
    with pytest.warns(UserWarning, match=r"log.jsonl has lost its lines of epoch 1, 3: the record will say so"):
        record = train(run, tiny_data, folder, **QUIET)
    assert record.missing == [1, 3]
    assert json.loads((folder / "record.json").read_text())["missing_epochs"] == [1, 3]
    assert TrainingRecord.load(folder) == record


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_classes_and_folders_whose_names_are_not_utf8_are_trained_on(tiny_recipe: ImageRecipe, tmp_path: Path) -> None:
    data = tmp_path / os.fsdecode(b"caf\xe9")
    for split, count, seed in (("train", 12, 0), ("test", 4, 1)):
        for number, (pixels, label) in enumerate(zip(*make_images(count, seed), strict=True)):
            home = data / split / os.fsdecode(b"\xe9tage %d" % label)
            home.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(home / f"{number}.png")
    out = tmp_path / "run"
    words = ["train", "cifar100-fast", "--data", str(data), *CHANGES, "--set", "epochs=1", "--device", "cpu"]
    done = Program(CLI, [*words, "--out", out], tmp_path)
    assert done.wait() == 0, done.stderr
    assert "model, log and record are in" in done.stdout
    assert load_trained(out).config["class_names"][0] == os.fsdecode(b"\xe9tage 0")
    assert evaluate_trained(str(out), data).clean.images == 16
    elsewhere = Program(CLI, [*words, "--out", tmp_path / os.fsdecode(b"run \xff")], tmp_path)
    assert elsewhere.wait() == 1
    assert "a name that is not UTF-8: choose another --out" in " ".join(elsewhere.stderr.split())


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGTERM")
def test_a_schedulers_sigterm_stops_a_run_as_ctrl_c_does(tiny_data: Path, tmp_path: Path) -> None:
    words = ["train", "cifar100-fast", "--data", str(tiny_data), *CHANGES, "--set", "epochs=1000", "--device", "cpu"]
    program = Program(CLI, [*words, "--out", tmp_path], tmp_path / "said")
    assert any("epoch 2/1000" in line for line in program.lines("stderr"))
    program.send(signal.SIGTERM)
    assert program.wait() == 128 + signal.SIGTERM
    said = rf"stopped: the checkpoint in {tmp_path} is of epoch \d+ of 1000; the same command goes on"
    assert re.search(said, program.stderr)
    assert "Traceback" not in program.stderr


def test_an_unfinished_run_says_so_in_every_verb(folder: Path) -> None:
    (folder / "config.json").unlink()
    for verb in ("measure", "explain", "evaluate"):
        done = Program(CLI, [verb, folder, "--data", "bundled"], folder.parent)
        assert done.wait() == 1
        assert "is not finished: run its command again" in " ".join(done.stderr.split())


def test_a_record_that_is_not_whole_is_refused_by_what_it_lacks(folder: Path) -> None:
    content = json.loads((folder / "record.json").read_text())
    for key, value in (("final", None), ("seed", "0"), ("fraction", True), ("epochs", [1]), ("std", "x")):
        (folder / "record.json").write_text(json.dumps({**content, key: value}))
        with pytest.raises(CheckpointError, match=f"record.json is not a whole record: its {key} is "):
            TrainingRecord.load(folder)
    (folder / "record.json").write_text(json.dumps({**content, "a later version's": 1}))
    assert TrainingRecord.load(folder).to_json() == content
    assert torch.tensor(TrainingRecord.load(folder).final["loss"]).isfinite()
