"""A study: every job, seed and arm once, each with its own file, until the time is up; then what can be claimed."""

from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Protocol

from unsmooth.control.modes import PLAIN
from unsmooth.errors import ForwardError, OptionError, WeightsError
from unsmooth.metrics.differences import Comparison, compare_seeds
from unsmooth.sources.files import read_json, validate_file, write_atomically
from unsmooth.sources.provenance import Provenance, provenance
from unsmooth.sources.typed_json import from_plain
from unsmooth.training.engine.precision import as_computed
from unsmooth.training.finetuning.arms import Arm, OutOfTimeError

SCHEMA = "unsmooth.finetuned/1"


class Runnable(Protocol):
    """A data set or task on which one model is fine-tuned (`Job`)."""

    name: str
    unit: str
    settings: dict[str, str]

    def run(self, arm: Arm, seed: int, deadline: float = ...) -> dict[str, float]:
        """Fine-tune and score; `score` is what arms are compared by."""
        ...


@dataclass(frozen=True)
class FineTuned:
    """One run that ended."""

    model: str
    data: str
    unit: str
    arm: str
    seed: int
    scores: dict[str, float]
    seconds: float
    settings: dict[str, str]
    command: str = ""
    failed: str = ""
    made: Provenance | None = None

    @property
    def file(self) -> str:
        """Its name in the folder of a study."""
        return file_of(self.data, self.arm, self.seed)


def file_of(data: str, arm: str, seed: int) -> str:
    """The name of a run's file."""
    return f"{data}-{arm}-seed{seed}.json"


def load_runs(folder: str | Path) -> list[FineTuned]:
    """Every run that a folder holds, by name."""
    found = []
    for path in sorted(Path(folder).glob("*-seed*.json")):
        raw = read_json(path, SCHEMA)
        with validate_file(path):
            run = from_plain(FineTuned, raw)
            hardware = "" if run.made is None else run.made.hardware
            found.append(replace(run, settings=as_computed(run.settings, hardware)))
    return found


def run_study(
    model: str, jobs: Sequence[Runnable], arms: Sequence[Arm], seeds: Iterable[int], folder: str | Path, *,
    minutes: float = math.inf, command: str = "", say: Callable[[str], object] = print,
) -> list[FineTuned]:  # fmt: skip
    """Each run that has no file yet, seed after seed so that what there is can be compared at any time.

    A run that would not end in time (as long as the longest of its job and arm, or of its job) is not started, nor is
    one without its pair, the plain run of its seed; and one that does not end in time is given up, without a file.
    """
    begun, known = time.monotonic(), {run.file: run for run in load_runs(folder)}
    longest = {(run.data, run.arm): run.seconds for run in sorted(known.values(), key=lambda run: run.seconds)}
    _refuse_mixing(model, jobs, known.values(), folder)
    Path(folder).mkdir(parents=True, exist_ok=True)
    deadline = begun + 60 * minutes
    for seed, job, arm in itertools.product(seeds, jobs, arms):
        start = time.monotonic()
        likely = max((took for (data, _), took in longest.items() if data == job.name), default=0.0)
        if file_of(job.name, arm.name, seed) in known or start + longest.get((job.name, arm.name), likely) >= deadline:
            continue
        if arm.name != PLAIN and file_of(job.name, PLAIN, seed) not in known:
            continue
        failed, scores = "", {}
        try:
            scores = {key: float(value) for key, value in job.run(arm, seed, deadline).items()}
        except OutOfTimeError:
            say(f"{job.name}, {arm.name}, seed {seed}: given up, the time is over")
            break
        except (WeightsError, ForwardError) as error:  # that an arm does not fit a model is a result too
            failed = str(error)
        took = time.monotonic() - start
        run = FineTuned(
            model, job.name, job.unit, arm.name, seed, scores, took, job.settings, command, failed, provenance()
        )
        write_atomically(Path(folder) / run.file, json.dumps({"schema": SCHEMA, **asdict(run)}, indent=1) + "\n")
        known[run.file] = run
        longest[job.name, arm.name] = max(took, longest.get((job.name, arm.name), 0))
        said = f"failed: {failed}" if failed else f"{job.unit} {scores['score']:.4f}"
        say(f"{job.name}, {arm.name}, seed {seed}: {said} ({took:.0f} s)")
    return list(known.values())


def _refuse_mixing(model: str, jobs: Sequence[Runnable], known: Iterable[FineTuned], folder: str | Path) -> None:
    """Runs of another model or with other settings are no pairs of these."""
    settings = {job.name: job.settings for job in jobs}
    for run in known:
        here = settings.get(run.data, run.settings)
        other = [name for name in {**here, **run.settings} if here.get(name) != run.settings.get(name)]
        if run.data in settings and (run.model != model or other):
            said = f"settings: {', '.join(other)}" if other else f"model, {run.model}"
            raise OptionError(f"{Path(folder) / run.file} was made with another {said}; give another folder")


def compared(runs: Iterable[FineTuned], data: str) -> list[Comparison]:
    """Every arm against plain on the seeds that both have, in points, corrected for how many arms there are."""
    by_arm: dict[str, dict[int, float]] = {}
    for run in runs:
        if run.data == data and run.scores:
            by_arm.setdefault(run.arm, {})[run.seed] = 100 * run.scores["score"]
    return compare_seeds(by_arm.pop(PLAIN, {}), by_arm, PLAIN)
