"""A whole run: open, train, log, checkpoint, evaluate, save; the same command goes on where it stopped."""

from __future__ import annotations

import contextlib
import copy
import math
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from unsmooth.errors import OptionError, UnsmoothError
from unsmooth.prose import some
from unsmooth.sources.provenance import default_device
from unsmooth.training.engine.budget import Clock, Length
from unsmooth.training.engine.checkpoint import Keeper, find_checkpoint, remove_drafts, writing
from unsmooth.training.engine.claim import claimed
from unsmooth.training.engine.journal import Journal
from unsmooth.training.engine.milestones import Milestones
from unsmooth.training.engine.recipe import Recipe
from unsmooth.training.engine.record import RECORD, TrainingRecord, circumstances
from unsmooth.training.engine.resume import finished, resume
from unsmooth.training.engine.run import Run
from unsmooth.training.engine.step import Speed, Trainer
from unsmooth.training.engine.task import Task

Progress = Callable[[int, int, dict[str, Any]], None]  # units done, units in all, what is known of the last
Kept = dict[tuple[Recipe, str], Trainer]  # by recipe and variant
SCARCE = 0.25  # of a GPU's memory


@contextlib.contextmanager
def _first_alone(rank: int, world: int) -> Iterator[None]:
    """The first process goes through, then the others."""
    if rank > 0:
        torch.distributed.barrier()
    yield
    if rank == 0 and world > 1:
        torch.distributed.barrier()


class TrainingError(UnsmoothError):
    """A loss that is not a number."""


def train(
    run: Run,
    data: str | Path,
    out: str | Path,
    *,
    device: str | torch.device | None = None,
    speed: Speed | None = None,
    progress: Progress | None = None,
    tensorboard: bool = True,
    rank: int = 0,
    world: int = 1,
    sharded: bool = False,
    kept: Kept | None = None,
    keep_every: int | None = None,
) -> TrainingRecord | None:
    """Train to the end, from a checkpoint in `out` if there is one; returns the record that the first process wrote.

    `sharded`: the processes share the model's weights (FSDP2) instead of having a copy each. `kept`: trainers of
    earlier runs, one of which may serve this one; this run's is added. `keep_every`: keep the model of every so many
    epochs (text: steps) in `out`/checkpoints, for `unsmooth track`.
    """
    started, folder = time.monotonic(), Path(out)
    device = torch.device(device or default_device())
    with claimed(folder) if rank == 0 else contextlib.nullcontext():  # the first process alone writes
        task = _open_task(run, data, device, rank, world, sharded)
        trainer = None if kept is None or find_checkpoint(folder) is not None else _kept_trainer(run, task, kept)
        if trainer is None:
            trainer = Trainer(task, speed, world, sharded)
            if kept is not None:
                kept[run.recipe, run.variant] = trainer
        state = {**run.state(), "data_hash": task.data_hash}
        found = resume(state, folder, trainer)
        if record := finished(state, folder):
            return record if rank == 0 else None  # its date, commit and minutes stay
        clock = Clock(started, float(found.get("minutes", 0.0)))
        length = Length(run, task, clock, found.get("steps"))
        log = None
        if rank == 0:
            remove_drafts(folder)
            log = Journal(folder, trainer.done // task.per_unit, tensorboard, task.unit)
            _say_what_is_missing(log, task, trainer.done)
        keeper = Keeper(folder, rank)
        milestones = Milestones(run, task, folder, keep_every, trainer.done)
        if trainer.done == 0 and milestones.due(0, length.total):
            with trainer.whole_model() as model:
                milestones.keep(model, 0) if rank == 0 else None
        for row in _chunks(run, trainer, length, rank):
            _finite(row["train_loss"], "loss", task.unit, row[task.unit], folder)
            if trainer.done % task.every == 0 or trainer.done == length.total:
                row |= _look(task, trainer, length, folder, row[task.unit], rank, milestones)
                row["minutes"] = clock.minutes()
                if log is not None:
                    log.add(row)
                if keeper.due(trainer):
                    here = {"step": trainer.done, "unit": task.unit, task.unit: row[task.unit]}
                    keeper.save(trainer, {**state, **here, "minutes": row["minutes"], **length.state(), **task.state()})
            if progress is not None:
                progress(row[task.unit], length.units, row)
        return _finish(run, folder, trainer, log, state["data_hash"], length.total, clock.minutes(), kept is not None)


def _open_task(run: Run, data: str | Path, device: torch.device, rank: int, world: int, sharded: bool) -> Task:
    """The run's task on its data; OptionError where these processes cannot train it."""
    run.recipe.check(run, world)
    if world > 1 and run.control.reach is not None:
        raise OptionError(f"{run.variant} follows the norms of its own batches: expected one process, got {world}")
    with _first_alone(rank, world):  # it may fill a cache that the others then read
        task = run.recipe.open(run, data, device, rank, world)
    if sharded and not task.shardable:
        raise OptionError(f"the model of {run.recipe.name} cannot be sharded in training: leave --use_fsdp out")
    return task


def _kept_trainer(run: Run, task: Task, kept: Kept) -> Trainer | None:
    """The trainer of an earlier run that serves this one; the oldest are let go where memory becomes scarce."""
    found = kept.get((run.recipe, run.variant))
    if found is not None and found.takes_over(task):
        return found
    while kept and torch.cuda.is_available() and (m := torch.cuda.mem_get_info())[0] < SCARCE * m[1]:
        del kept[next(iter(kept))]
        torch.cuda.empty_cache()
    return None


def _chunks(run: Run, trainer: Trainer, length: Length, rank: int) -> Iterator[dict[str, Any]]:
    """Train one chunk after the other, and say of each what is known without looking at the model."""
    task = trainer.task
    if trainer.done >= length.total:
        return
    stream = task.stream(trainer.done)
    rows = next(stream)
    while trainer.done < length.total:
        begun, number = time.monotonic(), trainer.done // task.chunk
        rates = length.rates[trainer.done : min((number + 1) * task.chunk, length.total)]
        trainer.together = task.together(trainer.done, length.total)
        loss = trainer.run_chunk(rows, rates, seed=1_000_003 * (run.seed + 1_009 * rank) + number)
        rows = next(stream, rows)  # while a GPU is at work; the last one is not used
        row = {task.unit: -(-trainer.done // task.per_unit), "train_loss": float(loss)}
        row["milliseconds_per_step"] = round(1e3 * (time.monotonic() - begun) / len(rates), 3)
        row["lr"] = float(rates[-1])  # before the length is revised, and every step's rate with it
        length.revise(trainer.done)
        if trainer.done % task.chunk and trainer.done < length.total:  # a guess of the length ended inside the chunk
            stream = task.stream(trainer.done)
            rows = next(stream)
        yield row


def _look(
    task: Task, trainer: Trainer, length: Length, folder: Path, count: int, rank: int, milestones: Milestones
) -> dict[str, Any]:
    """Evaluate, in all processes if the task can; observe, and keep the model if that is due, in the first."""
    with trainer.whole_model() as model:
        if rank == 0 and milestones.due(trainer.done, length.total):
            milestones.keep(model, trainer.done)
        if rank and not task.evaluates_together:
            return {}
        scores = task.evaluate(model)
        # the last step may have broken the weights
        _finite(scores["loss"], "loss on the test set", task.unit, count, folder)
        seen = {} if rank else task.observe(model)
    return {"test": scores, **seen}


def _say_what_is_missing(log: Journal, task: Task, done: int) -> None:
    if missing := _missing(log, task, done):
        shown = some(missing, most=5)
        warnings.warn(f"{log.path} has lost its lines of {task.unit} {shown}: the record will say so", stacklevel=3)


def _missing(log: Journal, task: Task, done: int) -> list[int]:
    step = max(1, task.every // task.per_unit)
    return log.missing(range(step, done // task.per_unit + 1, step))


def _finite(value: float, name: str, unit: str, count: int, folder: Path) -> None:
    if not math.isfinite(value):
        kept = find_checkpoint(folder)
        raise TrainingError(
            f"the {name} is {value} in {unit} {count}: expected a finite number; "
            f"the last good checkpoint is {kept or 'none yet'}; lower lr, or std of ψ, or use precision=float32 "
            "(in another --out: it is another run)"
        )


def _finish(
    run: Run, folder: Path, trainer: Trainer, log: Journal | None, data_hash: str, total: int, minutes: float,
    kept: bool,
) -> TrainingRecord | None:  # fmt: skip
    """Bake, evaluate in full precision; the first process, which has the log, saves the model and the record.

    A model that is `kept` for further runs stays as it is.
    """
    task = trainer.task
    with trainer.whole_model() as model:
        plain = run.control.bake(copy.deepcopy(model) if kept else model)
        if log is None and not task.evaluates_together:
            return None
        final = task.evaluate(plain, final=True)
    if log is None:
        return None
    log.close()
    about: dict[str, Any] = {"run": run.name} | {k: getattr(run, k) for k in ("variant", "seed", "fraction", "subset")}
    with writing(folder):
        weights = task.save(plain, folder, {**about, "metrics": final})
        record = TrainingRecord(
            **about,
            **circumstances(trainer.device, trainer.world),
            speed=trainer.describe(),
            command=run.command(total),
            same_steps=run.same_steps,
            std=run.std,
            budget=run.budget,
            data_hash=data_hash,
            minutes=round(minutes, 2),
            final=final,
            recipe=run.recipe.as_dict(),
            unit=task.unit,
            rows=log.rows,
            weights=weights,
            missing=_missing(log, task, trainer.done),
        )
        record.save(folder / RECORD)
    return record
