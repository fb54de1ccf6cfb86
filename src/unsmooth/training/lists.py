"""Lists of runs (lists.toml): one command spends whatever device time there is."""

from __future__ import annotations

import itertools
import time
import tomllib
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

from unsmooth.errors import OptionError, UnsmoothError, WeightsError
from unsmooth.sources.files import write_atomically
from unsmooth.sources.provenance import default_device
from unsmooth.training.engine.claim import ClaimedError, claimed, is_claimed
from unsmooth.training.engine.journal import read_log
from unsmooth.training.engine.loop import Kept, TrainingError, train
from unsmooth.training.engine.record import RECORD, in_words, write_failure
from unsmooth.training.engine.results import check_results, has_results
from unsmooth.training.engine.run import Run
from unsmooth.training.tasks import find_recipe
from unsmooth.training.tasks.images.data import KeptImages


def find_list(name: str, recipe: str | None = None) -> list[Run]:
    """The runs of a list, in order, in this recipe (without one: cifar100) unless the list has its own."""
    lists = _lists()
    if name not in lists:
        raise OptionError.unknown("list of runs", name, lists)
    if recipe is not None and (own := [block["recipe"] for block in lists[name] if "recipe" in block]):
        raise OptionError(f"the list {name} has its own recipe, {own[0]}: leave {recipe} out")
    return [run for block in lists[name] for run in _combinations({"recipe": recipe or "cifar100", **block})]


def _lists() -> dict[str, list[dict[str, Any]]]:
    return tomllib.loads(files("unsmooth.training").joinpath("lists.toml").read_text(encoding="utf-8"))


def _combinations(block: dict[str, Any]) -> Iterator[Run]:
    axes = [value if isinstance(value, list) else [value] for value in block.values()]
    for values in itertools.product(*axes):
        run = dict(zip(block, values, strict=True))
        depth = f"-depth{run.pop('depth')}" if "depth" in run else ""
        yield Run(find_recipe(run.pop("recipe") + depth), **run)


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

    Several processes may work on one list, each on its own GPU or several on one: each takes what no other is at, and
    stays with a kind of run whose step it has compiled. `results` is where each model's measurement, explanation and
    scores go, beside its record; those that an earlier call could not make are tried again while the model is there.
    An error that nobody foresaw, in training or in what is made of the model, ends its run alone; the list goes on and
    names it at the end.
    """
    started, slowest, data = time.monotonic(), 0.0, KeptImages(data)
    where = options.get("device") or default_device()

    def write_results(run: Run) -> None:
        if results is None:
            return
        with claimed(out / run.name):  # or another process, which finds the run trained, would make them too
            run.recipe.write_results(out / run.name, data, results / run.short_name, device=where, say=say)

    @contextmanager
    def going_on(run: Run) -> Iterator[None]:
        try:
            yield
        except ClaimedError:
            say(f"{run.name}: another process is at it")
        except UnsmoothError:
            raise  # data or options, which the other runs share
        except Exception as error:
            kept.pop((run.recipe, run.variant), None)  # its trainer may be left in the middle of a step
            traceback.clear_frames(error.__traceback__)  # they hold the model, and a GPU may be full
            broken[run.name] = error
            say(f"{run.name}: {type(error).__name__}: {error}")

    kept: Kept = {}  # runs that differ in their seed alone share a compiled step
    waiting, broken = list(runs), dict[str, Exception]()
    while waiting:
        run = _next(waiting, runs, kept, out)
        waiting.remove(run)
        target, failed = records / f"{run.name}.json", records / f"{run.name}.failed.json"
        place = None if results is None else results / run.short_name
        if target.exists() or failed.exists() or (place is not None and has_results(place, run.name)):
            say(f"{run.name}: done already")
            if (out / run.name / RECORD).exists():
                with going_on(run):
                    write_results(run)
            continue
        left = minutes * 60 - (time.monotonic() - started)
        if left < slowest * _size(run):
            say(f"{run.name}: not started, {left:.0f} s left")
            break
        before, folder = time.monotonic(), out / run.name
        if place is not None:
            check_results(place, folder)
        if is_claimed(folder):  # first, so that nothing is said to be started that is not
            say(f"{run.name}: another process is at it")
            continue
        record = None
        with going_on(run):
            try:
                say(f"{run.name}: started")
                record = train(run, data, folder, kept=kept, **options)
            except (TrainingError, WeightsError) as error:  # that training breaks is a result too; the other runs go on
                rows = read_log(folder)
                about = {"run": run.name, **run.state(), "command": run.command()}
                write_failure(failed, {**about, "failed": str(error), "epochs": rows})
                say(f"{run.name}: {error}")
        if record is None:
            continue
        write_atomically(target, (folder / RECORD).read_bytes())
        with going_on(run):
            write_results(run)
        slowest = max(slowest, (time.monotonic() - before) / _size(run))
        say(f"{run.name}: {in_words(record.final)} in {record.minutes:.2f} min")
    if broken:
        name, first = next(iter(broken.items()))
        more = f", and so did {', '.join([*broken][1:])}" if len(broken) > 1 else ""
        raise UnsmoothError(f"{name} ended with an error{more}; the other runs went on: {first}") from first


def _next(waiting: list[Run], runs: list[Run], kept: Kept, out: Path) -> Run:
    """The first run whose step is compiled here; else the first of a kind that no other process is at; else the first.

    Runs that another process is at come last.
    """
    claimed = {run.name for run in runs if is_claimed(out / run.name)}
    busy = {(run.recipe, run.variant) for run in runs if run.name in claimed}

    def order(run: Run) -> int:
        kind = (run.recipe, run.variant)
        return 3 if run.name in claimed else 0 if kind in kept else 2 if kind in busy else 1

    return min(waiting, key=order)
