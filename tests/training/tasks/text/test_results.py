"""A text model's whole life by one command: trained, killed, trained on, measured, explained, fine-tuned."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import unsmooth
from unsmooth.cli import train as train_verb
from unsmooth.errors import CheckpointError, OptionError
from unsmooth.training import TrainingRecord
from unsmooth.training.tasks.superglue import evaluation
from unsmooth.training.tasks.superglue.evaluation import SuperGlue
from unsmooth.training.tasks.superglue.examples import TASKS, SuperGlueTask
from unsmooth.training.tasks.text import results
from unsmooth.training.tasks.text.recipe import TextRecipe

NAMES = {"record.json", "measurement.json", "explanation.json", "attribution.json", "superglue.json"}


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """SuperGLUE with one task, of two sizes of text."""
    folder = tmp_path / "superglue"
    for name, count in (("RTE", 32), ("CB", 16)):
        (folder / name).mkdir(parents=True)
        record = {"premise": "the quick fox", "hypothesis": "a lazy dog", "label": "entailment"}
        for split in ("train", "val"):
            (folder / name / f"{split}.jsonl").write_text("\n".join([json.dumps(record)] * count))
    chosen = {
        name: SuperGlueTask(name, TASKS[name].labels, TASKS[name].read, epochs=1, length=16, seeds=2)
        for name in ("RTE", "CB")
    }
    for place in ("examples.TASKS", "evaluation.TASKS"):
        monkeypatch.setattr(f"unsmooth.training.tasks.superglue.{place}", chosen)
    monkeypatch.setattr(
        results,
        "evaluate_superglue",
        lambda *a, **k: evaluation.evaluate_superglue(*a, tasks=list(chosen.values()), **k),
    )
    return folder


def live(folder: Path, tiny: TextRecipe, *more: str) -> Any:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(train_verb.command)
    words = [
        "small-text",
        "--data",
        str(folder / "texts"),
        "--out",
        str(folder / "run"),
        "--budget",
        "6",
        "--device",
        "cpu",
    ]
    changes = [word for change in tiny.changes() for word in ("--set", change)]
    return CliRunner().invoke(app, [*words, "--no-tensorboard", "--results", str(folder / "results"), *changes, *more])


def test_one_command_leaves_everything_but_the_weights(
    folder: Path, tiny: TextRecipe, tasks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    after = ("--superglue", str(tasks), "--variant", "sharpening")
    done, measured = [], []
    real = results.measure

    def stop_in_the_middle(self: Any, name: str, seed: int) -> Any:
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append((name, seed))
        return run(self, name, seed)

    run = evaluation._Work.run
    with monkeypatch.context() as patch:
        patch.setattr(evaluation._Work, "run", stop_in_the_middle)
        stopped = live(folder, tiny, *after)
    assert stopped.exit_code == 130
    assert "run has ended; the same command goes on with those results that are missing" in stopped.output
    place = folder / "results" / "small-text-sharpening"
    assert done == [("CB", 0), ("CB", 1), ("RTE", 0)]  # the smallest first
    assert {path.name for path in place.iterdir()} == NAMES - {"record.json"}  # written last
    assert SuperGlue.load(place / "superglue.json").protocol["seeds_run"] == {"RTE": 1, "CB": 2}  # as many as it holds
    monkeypatch.setattr(results, "measure", lambda *a, **k: measured.append(1) or real(*a, **k))
    again = live(folder, tiny, *after)
    assert again.exit_code == 0, again.output
    assert not measured
    assert {path.name for path in place.iterdir()} == NAMES
    scores = SuperGlue.load(place / "superglue.json")
    assert {name: len(found) for name, found in scores.scores.items()} == {"CB": 2, "RTE": 2}
    assert scores.protocol["kept"]
    record = TrainingRecord.load(place)
    assert scores.model["reference"] == record.run
    measurement = unsmooth.load(place / "measurement.json")
    assert record.weights == measurement.about.model.weights
    assert "SuperGLUE: " in again.output
    assert measurement.about.data.reference.startswith("held-out text")


def test_a_time_that_is_short_takes_seeds_then_tasks(folder: Path, tiny: TextRecipe, tasks: Path) -> None:
    done = live(
        folder, tiny, "--superglue", str(tasks), "--superglue-budget", "0.000001s"
    )  # over before the first task is read
    assert done.exit_code == 0, done.output
    scores = SuperGlue.load(folder / "results" / "small-text-plain" / "superglue.json")
    assert scores.scores == {}
    assert not scores.protocol["kept"]
    assert scores.protocol["seeds_run"] == {"RTE": 0, "CB": 0}
    assert "too short for any task" in done.output


def test_what_cannot_be_done_afterwards_is_refused_before(folder: Path, tiny: TextRecipe, tasks: Path) -> None:
    for more, why in (
        (("--superglue-budget", "5m"), "give both"),
        (("--superglue", str(folder)), "no file at"),
        (("--superglue", str(tasks), "--superglue-budget", "200"), "expected a time such as 8m"),
    ):
        found = live(folder, tiny, *more)
        assert why in str(found.exception)
    assert isinstance(found.exception, OptionError)
    (tasks / "RTE" / "train.jsonl").unlink()
    found = live(folder, tiny, "--superglue", str(tasks))
    assert "RTE/train.jsonl: expected SuperGLUE's own layout" in str(found.exception)
    assert not (folder / "run").exists()


def test_results_of_another_model_are_never_taken_for_this_ones(folder: Path, tiny: TextRecipe) -> None:
    """A folder of results is named without the budget: a longer run would have found those of a shorter one."""
    assert live(folder, tiny).exit_code == 0
    place = folder / "results" / "small-text-plain"
    before = {path.name: path.read_bytes() for path in place.iterdir()}
    other = live(folder, tiny, "--budget", "9", "--out", str(folder / "longer"))
    assert isinstance(other.exception, CheckpointError)
    assert "is of small-text-6steps-plain-seed0, and" in str(other.exception)
    assert "longer has no finished run yet" in str(other.exception)
    assert not (folder / "longer").exists()  # refused before it is trained
    record = TrainingRecord.load(folder / "run")
    for changes, why in (
        ({"weights": "0" * 64}, "is of small-text-6steps-plain-seed0, by other weights"),
        ({"run": "x"}, "not of x"),
    ):
        replace(record, **changes).save(folder / "run" / "record.json")
        with pytest.raises(CheckpointError, match=why):
            results.write_results(folder / "run", folder / "texts", place)
    assert {path.name: path.read_bytes() for path in place.iterdir()} == before
    record.save(folder / "run" / "record.json")
    (place / "measurement.json").write_bytes(before["measurement.json"][:100])
    assert "truncated or not JSON" in (said := str(live(folder, tiny).exception))
    assert "delete the file, and the same command makes it again" in said
