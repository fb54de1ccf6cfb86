"""A study: every job, seed and arm once, each with its own file, until the time is up; then what can be claimed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from unsmooth.errors import ForwardError, WeightsError
from unsmooth.metrics.differences import Comparison, compare_seeds
from unsmooth.sources.files import read_json, validate_file, write_atomically
from unsmooth.sources.plain import from_plain
from unsmooth.sources.provenance import Provenance, provenance
from unsmooth.training.finetuning.arms import PLAIN, Arm

SCHEMA = "unsmooth.finetuned/1"


class Job(Protocol):
    """A data set or task on which one model is fine-tuned."""

    name: str
    unit: str

    def run(self, arm: Arm, seed: int) -> dict[str, Any]:
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
    command: str = ""
    failed: str = ""
    made: Provenance | None = None

    @property
    def file(self) -> str:
        """Its name in the folder of a study."""
        return f"{self.data}-{self.arm}-seed{self.seed}.json"


def load_runs(folder: str | Path) -> list[FineTuned]:
    """Every run that a folder holds, by name."""
    found = []
    for path in sorted(Path(folder).glob("*-seed*.json")):
        raw = read_json(path, SCHEMA)
        with validate_file(path):
            found.append(from_plain(FineTuned, raw))
    return found


def run_study(
    model: str, jobs: Sequence[Job], arms: Sequence[Arm], seeds: Iterable[int], folder: str | Path, *,
    minutes: float = float("inf"), command: str = "", say: Callable[[str], object] = print,
) -> list[FineTuned]:  # fmt: skip
    """Each run that has no file yet, seed after seed so that what there is can be compared at any time.

    A run that would not end in time (as long as the longest of its job and arm) is not started.
    """
    begun, known = time.monotonic(), {run.file: run for run in load_runs(folder)}
    longest = {(run.data, run.arm): run.seconds for run in known.values()}
    Path(folder).mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        for job in jobs:
            for arm in arms:
                name = f"{job.name}-{arm.name}-seed{seed}.json"
                left = 60 * minutes - (time.monotonic() - begun)
                if name in known or left < longest.get((job.name, arm.name), 0):
                    continue
                start = time.monotonic()
                failed, scores = "", {}
                try:
                    scores = {key: float(value) for key, value in job.run(arm, seed).items()}
                except (WeightsError, ForwardError) as error:  # that an arm does not fit a model is a result too
                    failed = str(error)
                took = time.monotonic() - start
                run = FineTuned(model, job.name, job.unit, arm.name, seed, scores, took, command, failed, provenance())
                write_atomically(
                    Path(folder) / run.file, json.dumps({"schema": SCHEMA, **asdict(run)}, indent=1) + "\n"
                )
                known[run.file] = run
                longest[job.name, arm.name] = max(took, longest.get((job.name, arm.name), 0))
                said = f"failed: {failed}" if failed else f"{job.unit} {scores['score']:.4f}"
                say(f"{job.name}, {arm.name}, seed {seed}: {said} ({took:.0f} s)")
    return list(known.values())


def compared(runs: Iterable[FineTuned], data: str) -> list[Comparison]:
    """Every arm against plain on the seeds that both have, in points, corrected for how many arms there are."""
    by_arm: dict[str, dict[int, float]] = {}
    for run in runs:
        if run.data == data and run.scores:
            by_arm.setdefault(run.arm, {})[run.seed] = 100 * run.scores["score"]
    return compare_seeds(by_arm.pop(PLAIN, {}), by_arm, PLAIN)
