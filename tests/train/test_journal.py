"""What a run writes down: the log, TensorBoard, the record."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest
import torch

from unsmooth.train import Run, journal, train
from unsmooth.train.journal import Journal, read_log
from unsmooth.train.recipes import Recipe


def test_a_log_line_cut_by_a_kill_is_dropped(tmp_path: Path) -> None:
    journal = Journal(tmp_path, tensorboard=False)
    for epoch in (1, 2, 3):
        journal.add({"epoch": epoch, "train_loss": 1.0})
    (tmp_path / "log.jsonl").write_text((tmp_path / "log.jsonl").read_text()[:-10])
    assert [row["epoch"] for row in read_log(tmp_path)] == [1, 2]
    assert [row["epoch"] for row in Journal(tmp_path, first_epoch=1, tensorboard=False).rows] == [1]


def test_tensorboard_gets_every_logged_number(tiny_data: Path, tiny_recipe: Recipe, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    train(Run(tiny_recipe.override(["epochs=2"]), "sharpening"), tiny_data, tmp_path, device="cpu")
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    tags = set(events.Tags()["scalars"])
    wanted = {"train_loss", "test/accuracy", "lr", "control/condition", "smoothing/cosine_similarity/1"}
    assert wanted <= tags
    assert [e.step for e in events.Scalars("train_loss")] == [1, 2]


@pytest.mark.parametrize("strange", [b"\xff\xfe\x00", b"[1, 2]", b"{}", b'{"epoch": "2"}', b"2"])
def test_a_line_that_is_no_row_ends_the_log(strange: bytes, tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_bytes(b'{"epoch": 1}\n' + strange + b'\n{"epoch": 3}\n')
    assert read_log(tmp_path) == [{"epoch": 1}]


@pytest.mark.parametrize("first_epoch", [0, 2])
def test_tensorboard_shows_an_epoch_once_that_a_kill_made_run_twice(tmp_path: Path, first_epoch: int) -> None:
    """Killed after the row of epoch 4 and before its checkpoint; with 0, before there was any checkpoint."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    before = Journal(tmp_path)
    for epoch in range(1, 5):
        before.add({"epoch": epoch, "train_loss": 1.0})
    after = Journal(tmp_path, first_epoch)
    for epoch in range(first_epoch + 1, 7):
        after.add({"epoch": epoch, "train_loss": 2.0})
    before.close()
    after.close()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [e.step for e in events.Scalars("train_loss")] == [1, 2, 3, 4, 5, 6]
    assert [e.value for e in events.Scalars("train_loss")] == [1.0] * first_epoch + [2.0] * (6 - first_epoch)


def test_the_record_says_what_was_run(tiny_data: Path, tiny_recipe: Recipe, tmp_path: Path) -> None:
    started = time.monotonic()
    run = Run(tiny_recipe.override(["epochs=1"]), "smoothing", seed=2, fraction=0.5, subset=3)
    train(run, tiny_data, tmp_path, device="cpu", tensorboard=False)
    record = json.loads((tmp_path / "record.json").read_text())
    assert record["schema"] == "unsmooth-record/1"
    assert [record[k] for k in ("variant", "seed", "fraction", "subset")] == ["smoothing", 2, 0.5, 3]
    assert record["command"].startswith(
        "unsmooth train cifar100-fast --variant smoothing --seed 2 --fraction 0.5 --subset 3 "
    )
    assert 0 <= record["minutes"] <= (time.monotonic() - started) / 60 + 0.01
    assert 0 < record["epochs"][0]["milliseconds_per_step"] <= 1e3 * (time.monotonic() - started)
    assert record["epochs"][0]["spectrum"]["positive"] == [1.0, 1.0]
    assert {"commit", "hardware", "date", "torch", "data_hash"} <= record.keys()
    assert record["hardware"].startswith("CPU")
    assert record["speed"] == {
        "arithmetic": "float32", "compile": None, "graph": False, "attention": None, "class_token": True,
        "fused": False, "processes": 1,
    }  # fmt: skip


def test_a_repository_that_only_holds_the_installed_package_is_not_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a", *words], cwd=tmp_path, check=True)

    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "somebody's work")
    installed = tmp_path / "journal.py"
    installed.touch()
    monkeypatch.setattr(journal, "__file__", str(installed))
    monkeypatch.setenv("UNSMOOTH_COMMIT", "abc1234")
    assert journal.commit() == "abc1234"
    git("add", "journal.py")
    assert journal.commit() not in ("abc1234", "unknown")


def test_the_hardware_of_several_processes_says_how_many() -> None:
    one, two = (journal.hardware(torch.device("cpu"), processes) for processes in (1, 2))
    assert one.startswith("CPU ")
    assert two == f"2 × {one}"
