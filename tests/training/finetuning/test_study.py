"""A study of fine-tuning: pairs share everything but the arm, runs are not repeated, claims follow from the files."""

from __future__ import annotations

import json
import math
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from unsmooth.errors import CheckpointError, OptionError
from unsmooth.training.finetuning import Arm, ImageJob, load_runs, run_study
from unsmooth.training.finetuning.arms import (
    OutOfTimeError,
    chosen_arms,
)
from unsmooth.training.finetuning.study import SCHEMA, compared


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


def test_a_study_that_a_cpu_began_goes_on_whatever_its_files_say_of_bfloat16(tmp_path: Path) -> None:
    """Earlier versions said so on a CPU, too, which computes in float32."""
    scripted = Scripted()
    scripted.settings = {"precision": "float32"}
    (run,) = run_study("m", [scripted], [Arm()], [0], tmp_path, say=str)
    assert run.made is not None
    for hardware, known in (("CPU x86_64", True), ("2 × CPU x86_64", True), ("1 × NVIDIA H200", False)):
        earlier = replace(run, settings={"precision": "bf16"}, made=replace(run.made, hardware=hardware))
        (tmp_path / run.file).write_text(json.dumps({"schema": SCHEMA, **asdict(earlier)}))
        if known:
            assert len(run_study("m", [scripted], [Arm()], [0], tmp_path, say=str)) == 1
        else:
            with pytest.raises(OptionError, match="another settings: precision"):
                run_study("m", [scripted], [Arm()], [0], tmp_path, say=str)
    assert scripted.calls == [("plain", 0)]


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
