"""A new task needs no other code: what the engine does for images it does for a stream that is counted in steps."""

from __future__ import annotations

import ast
import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from processes import train_in_two
from safetensors.torch import load_file
from training.toy import ToyRecipe, ToyTask, write_shards
from typer.testing import CliRunner

import unsmooth.training.engine
from unsmooth.cli.app import app
from unsmooth.errors import CheckpointError, OptionError
from unsmooth.training import Run, Trainer, TrainingRecord, tasks, train
from unsmooth.training.engine.checkpoint import CURRENT, Keeper, read_checkpoint
from unsmooth.training.engine.journal import read_log

QUIET: dict[str, Any] = {"device": "cpu", "tensorboard": False}


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_shards(tmp_path_factory.mktemp("shards"))


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return {name: t for name, t in load_file(folder / CURRENT).items() if name.startswith("model.")}


def stop_after(step: int) -> Any:
    def stop(done: int, *_: object) -> None:
        if done >= step:
            raise KeyboardInterrupt

    return stop


def test_the_engine_imports_no_task() -> None:
    for file in Path(unsmooth.training.engine.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not any(".tasks" in name or ".fast" in name for name in names), file


def test_models_on_the_way_are_kept_when_asked_for_and_a_resumed_run_has_the_same(shards: Path, tmp_path: Path) -> None:
    run = Run(ToyRecipe("toy", steps=45))
    for name, stop in (("whole", None), ("resumed", stop_after(30))):
        with pytest.raises(KeyboardInterrupt) if stop else nullcontext():
            train(run, shards, tmp_path / name, **QUIET, progress=stop, keep_every=20)
    train(run, shards, tmp_path / "resumed", **QUIET, keep_every=20)
    for name in ("whole", "resumed"):
        kept = tmp_path / name / "checkpoints"
        assert sorted(path.name for path in kept.iterdir()) == ["step-0", "step-20", "step-40", "step-45"]
        (last,) = (path for path in (kept / "step-45").iterdir() if path.suffix == ".safetensors")
        assert last.read_bytes() == (tmp_path / name / last.name).read_bytes()  # as it is saved at the end
    for step in (0, 20, 40):
        whole, resumed = (tmp_path / name / "checkpoints" / f"step-{step}" / last.name for name in ("whole", "resumed"))
        assert whole.read_bytes() == resumed.read_bytes() != last.read_bytes()
    with pytest.raises(OptionError, match="expected at least 1 step between two models that are kept, got 0"):
        train(run, shards, tmp_path / "none", **QUIET, keep_every=0)


def test_a_stream_is_trained_logged_and_recorded_in_steps(shards: Path, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    run = Run(ToyRecipe("toy", steps=25))
    record = train(run, shards, tmp_path, **QUIET, progress=lambda done, total, _: told.append((done, total)))
    assert record is not None
    assert told == [(5, 25), (10, 25), (15, 25), (20, 25), (25, 25)]
    assert [row["step"] for row in record.rows] == [10, 20, 25]
    assert record.rows[-1]["train_loss"] < record.rows[0]["train_loss"]
    assert record.rows[-1]["test"] == {"loss": pytest.approx(record.final["loss"], rel=1e-6)}
    assert len(record.rows[0]["smoothing"]["hfc_lfc"]) == 2
    content = json.loads((tmp_path / "record.json").read_text())
    assert [row["step"] for row in content["steps"]] == [10, 20, 25]
    assert TrainingRecord.load(tmp_path) == record
    assert record.command == "unsmooth train toy --variant plain --seed 0 --set steps=25 --data PATH"


@pytest.mark.parametrize("variant", ["plain", "sharpening"])
def test_a_run_that_stopped_inside_an_epoch_ends_in_the_same_weights(
    variant: str, shards: Path, tmp_path: Path
) -> None:
    """Dropout is on, and the checkpoint at step 10 lies in the second epoch of seven steps."""
    run = Run(ToyRecipe("toy"), variant, seed=3)
    whole = train(run, shards, tmp_path / "whole", **QUIET)
    with pytest.raises(KeyboardInterrupt):
        train(run, shards, tmp_path / "stopped", **QUIET, progress=stop_after(15))
    assert read_checkpoint(tmp_path / "stopped" / CURRENT)[1]["step"] == 10
    again = train(run, shards, tmp_path / "stopped", **QUIET)
    ours, theirs = weights(tmp_path / "stopped"), weights(tmp_path / "whole")
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert [row["train_loss"] for row in again.rows] == [row["train_loss"] for row in whole.rows]


def test_no_sample_of_a_stream_is_missed_or_repeated(shards: Path, tmp_path: Path) -> None:
    task = ToyRecipe("toy").open(Run(ToyRecipe("toy")), shards, torch.device("cpu"))
    stream = task.stream(0)
    whole = torch.cat([next(stream)["x"] for _ in range(4)])
    for start in (3, 5, 12):
        later = task.stream(start)
        assert torch.equal(torch.cat([next(later)["x"] for _ in range(2)]), whole[start : start // 5 * 5 + 10])
    epoch = whole.flatten(0, 1)[:56]
    assert len({tuple(sample.flatten().tolist()) for sample in epoch}) == 56


def test_two_processes_train_a_stream_as_one_does(shards: Path, tmp_path: Path) -> None:
    train(Run(ToyRecipe("toy", dropout=0.0)), shards, tmp_path / "one", **QUIET)
    assert train_in_two(ToyRecipe("toy", dropout=0.0), shards, tmp_path / "two") == ["record", "no record"]
    one, two = weights(tmp_path / "one"), weights(tmp_path / "two")
    for name, value in one.items():
        if "in_proj_bias" not in name:  # softmax does not see the keys' bias: AdamW moves it by rounding alone
            torch.testing.assert_close(two[name], value, rtol=1e-2, atol=1e-3, msg=name)
    logs = [read_log(tmp_path / name) for name in ("one", "two")]
    for read in (lambda row: row["train_loss"], lambda row: row["test"]["loss"]):
        assert [read(row) for row in logs[1]] == pytest.approx([read(row) for row in logs[0]], rel=1e-4)


def test_a_budget_in_steps_is_the_length_of_the_run_and_of_its_schedule(shards: Path, tmp_path: Path) -> None:
    run = Run(ToyRecipe("toy"), budget="13")
    record = train(run, shards, tmp_path, **QUIET)
    assert [row["step"] for row in record.rows] == [10, 13]
    assert record.rows[-1]["lr"] == pytest.approx(0.01 * (1 - 12 / 13) / 0.25)
    assert run.name == "toy-13steps-plain-seed0"
    assert "--budget 13" in record.command
    with pytest.raises(CheckpointError, match="belongs to another run: its budget is 13"):
        train(Run(ToyRecipe("toy")), shards, tmp_path, **QUIET)


def test_minutes_become_steps_once_and_the_record_can_be_repeated(
    shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock of our own: one step takes a second, the first chunk a minute more."""
    clock, used = [0.0], dict[int, float]()
    run_chunk = Trainer.run_chunk

    def timed(trainer: Trainer, rows: Any, rates: torch.Tensor, seed: int) -> torch.Tensor:
        clock[0] += len(rates) + (60 if trainer.done == 0 else 0)
        used[trainer.done + len(rates)] = float(rates[-1])
        return run_chunk(trainer, rows, rates, seed)

    monkeypatch.setattr(Trainer, "run_chunk", timed)
    monkeypatch.setattr("unsmooth.training.engine.loop.time.monotonic", lambda: clock[0])
    run = Run(ToyRecipe("toy"), budget="3m")
    with pytest.raises(KeyboardInterrupt):
        train(run, shards, tmp_path / "killed", **QUIET, progress=stop_after(50))
    record = train(run, shards, tmp_path / "killed", **QUIET)
    steps = record.rows[-1]["step"]
    assert 100 < steps <= 120  # two minutes are left after the first chunk
    assert 2 < record.minutes <= 3
    assert [row["lr"] for row in record.rows] == [used[row["step"]] for row in record.rows]  # not as found out later
    assert f"--budget {steps}" in record.command
    repeated = train(Run(ToyRecipe("toy"), budget=str(steps)), shards, tmp_path / "again", **QUIET)
    assert repeated.rows[-1]["step"] == steps
    assert repeated.rows[-1]["lr"] == record.rows[-1]["lr"]


@pytest.mark.parametrize(("before", "least", "most"), [(170, 11, 15), (0, 170, 185)])
def test_the_first_chunk_does_not_end_a_run_that_has_time_nor_make_it_endless(
    before: int, least: int, most: int, shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time may be that of the texts, which says little of a step; or so short that a clock's digits lose it."""
    clock, seen, longest = [0.0], list[torch.Tensor](), [0]
    run_chunk, rates_of = Trainer.run_chunk, ToyTask.rates

    def timed(trainer: Trainer, rows: Any, rates: torch.Tensor, seed: int) -> torch.Tensor:
        clock[0] += len(rates) if trainer.done else before + 0.02
        seen.append(rows["x"][: len(rates)])
        return run_chunk(trainer, rows, rates, seed)

    def rates(task: ToyTask, total: int) -> torch.Tensor:
        longest[0] = max(longest[0], total)
        return rates_of(task, min(total, 1_000_000))

    monkeypatch.setattr(Trainer, "run_chunk", timed)
    monkeypatch.setattr(ToyTask, "rates", rates)
    monkeypatch.setattr("unsmooth.training.engine.loop.time.monotonic", lambda: clock[0])
    run = Run(ToyRecipe("toy"), budget="3m")
    record = train(run, shards, tmp_path, **QUIET)
    assert least <= record.rows[-1]["step"] <= most
    assert longest[0] <= 100_000
    stream = ToyRecipe("toy").open(run, shards, torch.device("cpu")).stream(0)
    whole = torch.cat([next(stream)["x"] for _ in range(40)])
    got = torch.cat(seen)
    assert torch.equal(got, whole[: len(got)])  # no sample is left out where a guess ended inside a chunk


@pytest.mark.parametrize("text", ["", "m", "-3", "0", "0m", "infm", "3 weeks", "1.5"])
def test_a_budget_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="expected a budget such as 15m, 90s, 2h or 2000"):
        Run(ToyRecipe("toy"), budget=text)


def test_the_command_line_trains_whatever_the_registry_holds(
    shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "RECIPES", {"toy": ToyRecipe("toy")})
    words = ["train", "toy", "--data", str(shards), "--out", str(tmp_path), "--device", "cpu", "--variant", "smoothing"]
    done = CliRunner().invoke(app, [*words, "--set", "lr=0.001"])
    assert done.exit_code == 0, done.output
    assert "step 20/20: loss" in done.output
    assert "toy-smoothing-seed0: test loss" in done.output


def test_checkpoints_that_take_long_are_written_less_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of eight seconds is worth it again after 160; those of a small model always are."""
    now = [0.0]
    monkeypatch.setattr("unsmooth.training.engine.loop.time.monotonic", lambda: now[0])
    for seconds, expected in ((8.0, [True, False, False, True, False]), (0.5, [True] * 5)):

        def save(*_: object, seconds: float = seconds) -> None:
            now[0] += seconds

        monkeypatch.setattr("unsmooth.training.engine.checkpoint.save_checkpoint", save)
        keeper, due = Keeper(tmp_path), []
        trainer = cast(Trainer, SimpleNamespace(model=None, optimizer=None, sharded=None))
        for _ in range(5):
            due.append(keeper.due(trainer))
            if due[-1]:
                keeper.save(trainer, {})
            now[0] += 60
        assert due == expected
