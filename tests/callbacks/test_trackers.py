"""One interface, four trackers: each is tried with its real package where that is installed, and without a network."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from small_models import images, vit

import unsmooth
from unsmooth.callbacks import to_mlflow, to_tensorboard, to_trackio, to_wandb
from unsmooth.callbacks.trackers import TRACKERS, find_log
from unsmooth.errors import MissingExtraError, OptionError

NAME = "unsmooth/cosine_similarity/blocks.1.post"


@contextmanager
def foreign() -> Iterator[None]:
    """Other libraries' warnings are not ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def readings(log: Any) -> list[tuple[int, float]]:
    """Two steps of a small model, watched; what should arrive."""
    model, (probe, *_) = vit(), images(1)
    with unsmooth.watch(model, probe, every=1, log=log, count="manual", metrics="cosine_similarity") as watcher:
        with torch.no_grad():
            model.blocks[1].mlp.fc2.weight.mul_(3)
        watcher.step()
    assert not [said for said in watcher._said if "log" in said]
    return [(reading.step, reading.values()[NAME]) for reading in watcher.history]


def test_tensorboard_gets_scalars(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log = to_tensorboard(tmp_path)
    log({"unsmooth/hfc_lfc/embed": 0.5}, 0)
    log({"unsmooth/hfc_lfc/embed": 0.25}, 500)
    events = EventAccumulator(str(tmp_path)).Reload()
    assert [(e.step, e.value) for e in events.Scalars("unsmooth/hfc_lfc/embed")] == [(0, 0.5), (500, 0.25)]


def test_tensorboard_takes_an_open_writer() -> None:
    class Writer:
        def __init__(self) -> None:
            self.rows: list[tuple[str, float, int]] = []

        def add_scalar(self, name: str, value: float, step: int) -> None:
            self.rows.append((name, value, step))

        def flush(self) -> None:
            self.rows.append(("flushed", 0, 0))

    writer = Writer()
    to_tensorboard(writer)({"a": 1.0}, 7)
    assert writer.rows == [("a", 1.0, 7), ("flushed", 0, 0)]


def test_wandb_gets_values_on_a_step_axis_of_their_own() -> None:
    class Run:
        def __init__(self) -> None:
            self.defined: list[tuple[str, str | None]] = []
            self.rows: list[dict[str, float]] = []

        def define_metric(self, name: str, step_metric: str | None = None) -> None:
            self.defined.append((name, step_metric))

        def log(self, values: dict[str, float]) -> None:
            self.rows.append(values)

    run = Run()
    to_wandb(run)({"unsmooth/hfc_lfc/embed": 0.5}, 500)
    assert run.defined == [("unsmooth/step", None), ("unsmooth/*", "unsmooth/step")]
    assert run.rows == [{"unsmooth/hfc_lfc/embed": 0.5, "unsmooth/step": 500}]


def test_tensorboard_by_name(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    wanted = readings(f"tensorboard:{tmp_path}")
    found = [(event.step, event.value) for event in EventAccumulator(str(tmp_path)).Reload().Scalars(NAME)]
    assert found == [(step, pytest.approx(value, rel=1e-6)) for step, value in wanted]


def test_wandb_offline(offline: Path) -> None:
    wandb = pytest.importorskip("wandb", reason="wandb is not installed (pip install -e .[trackers])")
    with foreign(), wandb.init(mode="offline", project="unsmooth") as run:
        wanted = readings("wandb")  # the run that is open
        assert run.summary[NAME] == pytest.approx(wanted[-1][1])
        assert run.summary["unsmooth/step"] == 1
    (file,) = offline.rglob("*.wandb")
    assert file.stat().st_size > 0


def test_mlflow(offline: Path) -> None:
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed (pip install -e .[trackers])")
    with foreign():
        with mlflow.start_run() as run:
            wanted = readings("mlflow")
        wanted += readings(f"mlflow:{run.info.run_id}")  # by its id, after it has ended
        history = mlflow.MlflowClient().get_metric_history(run.info.run_id, NAME)
    found = [(metric.step, metric.value) for metric in history]
    assert found == [(step, pytest.approx(value)) for step, value in wanted]


def test_trackio(offline: Path) -> None:
    trackio = pytest.importorskip("trackio", reason="trackio is not installed (pip install -e .[trackers])")
    with foreign():
        run = trackio.init(project="unsmooth", name="one", embed=False)
        wanted = readings("trackio")
        trackio.finish()
        rows = trackio.Api().runs("unsmooth")
        assert [one.name for one in rows] == ["one"]
        from trackio.sqlite_storage import SQLiteStorage

        logs = SQLiteStorage.get_logs("unsmooth", "one")
    assert run is not None
    found = sorted((row["step"], row[NAME]) for row in logs if NAME in row)
    assert found == [(step, pytest.approx(value)) for step, value in wanted]


class Run:
    """What the interface needs of a run of W&B or Trackio, or of their modules."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.rows: list[tuple[dict[str, float], int | None]] = []

    def init(self, project: str) -> Run:
        self.begun.append(project)
        return self

    def define_metric(self, name: str, step_metric: str | None = None) -> None:
        pass

    def log(self, values: dict[str, float], step: int | None = None) -> None:
        self.rows.append((values, step))

    def log_metrics(self, values: dict[str, float], step: int, run_id: str | None = None) -> None:
        self.begun.append(str(run_id))
        self.rows.append((values, step))


@pytest.mark.parametrize("name", ["wandb", "mlflow", "trackio"])
def test_a_project_or_run_is_named_after_a_colon(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run()
    monkeypatch.setitem(sys.modules, name, run)
    log = find_log(f"{name}:mine")
    assert log is not None
    log({"unsmooth/a": 1.0}, 3)
    assert run.begun == ["mine"]
    ((values, step),) = run.rows
    assert values["unsmooth/a"] == 1.0
    assert (values["unsmooth/step"] if name == "wandb" else step) == 3


@pytest.mark.parametrize("name", ["wandb", "mlflow", "trackio"])
def test_a_missing_tracker_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=f"needs {name}, which is not installed: pip install {name}"):
        find_log(name)


def test_functions_pass_and_unknown_names_are_refused_before_the_training() -> None:
    assert find_log(None) is None
    assert find_log(print) is print
    assert {to_tensorboard, to_wandb, to_mlflow, to_trackio} == set(TRACKERS.values())
    with pytest.raises(OptionError, match="unknown tracker 'tensorbord': expected one of 'tensorboard', 'wandb'"):
        unsmooth.watch(vit(), images(1)[0], log="tensorbord:runs")
    with pytest.raises(OptionError, match=r"log must be a function.*got SimpleNamespace: .* goes through to_tensorbo"):
        unsmooth.watch(vit(), images(1)[0], log=SimpleNamespace())  # type: ignore[arg-type]
