"""Lists of runs (lists.toml): one command spends whatever device time there is."""

from __future__ import annotations

import itertools
import time
import tomllib
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

from unsmooth.errors import OptionError, WeightsError
from unsmooth.sources.files import write_atomically
from unsmooth.sources.provenance import default_device
from unsmooth.training.engine.claim import ClaimedError, refuse_claimed
from unsmooth.training.engine.journal import read_log
from unsmooth.training.engine.loop import Kept, TrainingError, train
from unsmooth.training.engine.record import RECORD, in_words, write_failure
from unsmooth.training.engine.results import check_results, has_results
from unsmooth.training.engine.run import Run
from unsmooth.training.tasks import find_recipe
from unsmooth.training.tasks.images.data import KeptImages


def find_list(name: str) -> list[Run]:
    """The runs of a list, in order."""
    lists = _lists()
    if name not in lists:
        raise OptionError.unknown("list of runs", name, lists)
    return [run for block in lists[name] for run in _combinations(block)]


def _lists() -> dict[str, list[dict[str, Any]]]:
    return tomllib.loads(files("unsmooth.training").joinpath("lists.toml").read_text(encoding="utf-8"))


def _combinations(block: dict[str, Any]) -> Iterator[Run]:
    axes = [value if isinstance(value, list) else [value] for value in block.values()]
    for values in itertools.product(*axes):
        run = dict(zip(block, values, strict=True))
        yield Run(find_recipe(run.pop("recipe", "cifar100")), **run)


def _size(run: Run) -> float:
    """What the time of a run is in proportion to, within a list."""
    return run.fraction * getattr(run.recipe, "depth", 1)


def train_all(
    runs: list[Run],
    data: str | Path,
    out: Path,
    records: Path,
    minutes: float = float("inf"),
    say: Callable[[str], None] = print,
    results: Path | None = None,
    **options: Any,
) -> None:
    """Each run that has no record or results yet, until the time is up; a run that would not fit is not started.

    Several processes may work on one list, each on its own GPU or two on one: each takes what no other is at.
    `results` is where each model's measurement, explanation and scores go, beside its record; those that an earlier
    call could not make are tried again while the model is there.
    """
    started, slowest, data = time.monotonic(), 0.0, KeptImages(data)
    where = options.get("device") or default_device()

    def write_results(run: Run) -> None:
        if results is not None:
            run.recipe.write_results(out / run.name, data, results / run.short_name, device=where, say=say)

    kept: Kept = {}  # runs that differ in their seed alone share a compiled step
    for run in runs:
        target, failed = records / f"{run.name}.json", records / f"{run.name}.failed.json"
        place = None if results is None else results / run.short_name
        if target.exists() or failed.exists() or (place is not None and has_results(place, run.name)):
            say(f"{run.name}: done already")
            if (out / run.name / RECORD).exists():
                write_results(run)
            continue
        left = minutes * 60 - (time.monotonic() - started)
        if left < slowest * _size(run):
            say(f"{run.name}: not started, {left:.0f} s left")
            break
        before, folder = time.monotonic(), out / run.name
        if place is not None:
            check_results(place, folder)
        try:
            refuse_claimed(folder)  # first, so that nothing is said to be started that is not
            say(f"{run.name}: started")
            record = train(run, data, folder, kept=kept, **options)
        except ClaimedError:
            say(f"{run.name}: another process is at it")
            continue
        except (TrainingError, WeightsError) as error:  # that training breaks is a result too; the other runs go on
            rows = read_log(folder)
            about = {"run": run.name, **run.state(), "command": run.command()}
            write_failure(failed, {**about, "failed": str(error), "epochs": rows})
            say(f"{run.name}: {error}")
            continue
        assert record is not None
        write_results(run)
        slowest = max(slowest, (time.monotonic() - before) / _size(run))
        write_atomically(target, (folder / RECORD).read_bytes())
        say(f"{run.name}: {in_words(record.final)} in {record.minutes:.2f} min")
