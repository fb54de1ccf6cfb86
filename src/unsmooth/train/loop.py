"""A whole run: load, build, train, log, checkpoint, evaluate, save; the same command goes on where it stopped."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import shlex
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from unsmooth.control import parameter_groups
from unsmooth.errors import OptionError, UnsmoothError
from unsmooth.models import view
from unsmooth.train import journal
from unsmooth.train.augment import EpochPlan, draw_epoch
from unsmooth.train.checkpoint import find_checkpoint, remove_drafts, save_checkpoint, writing
from unsmooth.train.claim import claimed
from unsmooth.train.evaluate import evaluate
from unsmooth.train.images import ImageSet
from unsmooth.train.model import build_model, save_model
from unsmooth.train.observe import observe
from unsmooth.train.recipes import RECIPES, Recipe
from unsmooth.train.resume import OURS, finished, resume
from unsmooth.train.schedule import learning_rates
from unsmooth.train.step import Speed, Trainer
from unsmooth.train.subset import data_hash, load_splits
from unsmooth.train.variants import Variant, apply_variant, baked

Progress = Callable[[int, int, dict[str, Any]], None]


class TrainingError(UnsmoothError):
    """A loss that is not a number."""


@dataclass(frozen=True)
class Run:
    """What is trained: a recipe, a variant of the model, a seed and a share of the data."""

    recipe: Recipe
    variant: str = "plain"
    seed: int = 0
    fraction: float = 1.0
    same_steps: bool = False  # as many steps as all data would take, instead of as many epochs
    std: float | None = None  # of ψ's initialisation
    subset: int = 0  # which images the fraction holds

    def __post_init__(self) -> None:
        """Refuse what no run can be, before any data is read."""
        variant = Variant.parse(self.variant)
        if not 0 < self.fraction <= 1:
            raise OptionError(f"fraction must lie in (0, 1], got {self.fraction}")
        if self.std is not None and variant.mode is None:
            raise OptionError(f"std is that of ψ, which the variant {self.variant!r} does not have: leave it out")
        if self.std is not None and not 0 < self.std < math.inf:
            raise OptionError(f"std must be positive and finite, got {self.std}")
        if not 0 <= self.seed < 2**32:
            raise OptionError(f"seed must lie in 0…{2**32 - 1}, got {self.seed}")
        if not 0 <= self.subset < 2**32:
            raise OptionError(f"subset must lie in 0…{2**32 - 1}, got {self.subset}")
        if self.subset and self.fraction == 1:
            raise OptionError(f"subset {self.subset} is one of many only below fraction 1: leave it out, or fraction=…")

    @property
    def name(self) -> str:
        """A name for folders and records.

        >>> Run(Recipe("cifar100"), "sharpening", seed=1, fraction=0.1).name
        'cifar100-10pct-sharpening-seed1'
        """
        share = "" if self.fraction == 1 else f"-{self.fraction * 100:g}pct"
        share += f"-subset{self.subset}" if self.subset else ""
        std = "" if self.std is None else f"-std{self.std:g}"
        steps = "-steps" if self.same_steps else ""
        return f"{self.recipe.name}{share}{steps}-{self.variant}{std}-seed{self.seed}"

    @property
    def epochs(self) -> int:
        """Epochs to train; more passes over fewer images when the number of steps is kept."""
        return round(self.recipe.epochs / self.fraction) if self.same_steps else self.recipe.epochs

    def state(self) -> dict[str, Any]:
        """What a checkpoint must agree with."""
        plain = {k: getattr(self, k) for k in ("variant", "seed", "fraction", "subset", "same_steps", "std")}
        return {"recipe": self.recipe.as_dict(), **plain}


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
) -> dict[str, Any]:
    """Train to the end, from a checkpoint in `out` if there is one; returns the record that was written."""
    started, folder = time.monotonic(), Path(out)
    device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    images, test = load_splits(data, run.recipe, run.fraction, run.subset)
    trainer = _make_trainer(run, images, device, speed, world)
    state = {**run.state(), "data_hash": data_hash(images, test)}
    with claimed(folder) if rank == 0 else contextlib.nullcontext():  # the first process alone writes
        first, before = resume(state, folder, trainer, len(images))
        if record := finished(state, folder):
            return record if rank == 0 else {}  # its date, commit and minutes stay
        if rank == 0:
            remove_drafts(folder, OURS)
        log = journal.Journal(folder, first, tensorboard) if rank == 0 else None
        test = dataclasses.replace(test, pixels=test.pixels.to(device), labels=test.labels.to(device))

        def minutes() -> float:
            return round(before + (time.monotonic() - started) / 60, 3)

        for row in _epochs(run, trainer, first, len(images), rank):
            done = row["epoch"]
            _finite(row["train_loss"], "loss", done, folder)
            if log is not None and (done % run.recipe.every == 0 or done == run.epochs):
                found = evaluate(trainer.model, test.pixels, test.labels, run.recipe)
                _finite(found.loss, "loss on the test set", done, folder)  # the last step may have broken the weights
                row |= {"lr": float(trainer.rates[int(trainer.done) - 1]), "test": found.as_dict()}
                row |= observe(trainer.model, test.pixels[: run.recipe.metric_images], run.recipe)
                row["minutes"] = minutes()
                log.add(row)
                here = {**state, "epoch": done, "minutes": row["minutes"]}
                save_checkpoint(folder, trainer.model, trainer.optimizer, here)
            if progress is not None:
                progress(done, run.epochs, row)
        if log is None:
            return {}
        log.close()
        return _finish(run, folder, trainer, test, log, state["data_hash"], minutes())


def _epochs(run: Run, trainer: Trainer, first: int, images: int, rank: int) -> Iterator[dict[str, Any]]:
    """Train one epoch after the other, and say of each what is known without looking at the model."""

    def draw(epoch: int) -> EpochPlan:
        plan = draw_epoch(images, run.recipe, run.seed, epoch)
        return plan.shard(rank, trainer.world) if trainer.world > 1 else plan

    plan = draw(first)
    for epoch in range(first, run.epochs):
        begun = time.monotonic()
        loss = trainer.run_epoch(plan, seed=1_000_003 * (run.seed + 1_009 * rank) + epoch)
        plan = draw(epoch + 1)  # while a GPU is at work; the last one is not used
        row = {"epoch": epoch + 1, "train_loss": float(loss)}
        yield row | {"milliseconds_per_step": round(1e3 * (time.monotonic() - begun) / len(plan), 3)}


def _make_trainer(run: Run, images: ImageSet, device: torch.device, speed: Speed | None, world: int) -> Trainer:
    recipe = run.recipe
    if len(images) < recipe.batch_size:
        raise OptionError(f"{len(images)} images do not fill one batch of {recipe.batch_size}: --set batch_size=…")
    model = apply_variant(build_model(recipe, run.seed), run.variant, run.std, run.seed).to(device)
    view(model)  # `observe` needs it: better refused now than after the first epochs
    rates = learning_rates(recipe, len(images) // recipe.batch_size, run.epochs)
    groups = parameter_groups(model, recipe.weight_decay)
    return Trainer(model, groups, images.pixels.to(device), images.labels.to(device), recipe, rates, speed, world)


def _finite(value: float, name: str, epoch: int, folder: Path) -> float:
    if not math.isfinite(value):
        kept = find_checkpoint(folder)
        raise TrainingError(
            f"the {name} is {value} in epoch {epoch}: expected a finite number; "
            f"the last good checkpoint is {kept or 'none yet'}; lower lr, or std of ψ, or use precision=float32 "
            "(in another --out: it is another run)"
        )
    return value


def _finish(
    run: Run, folder: Path, trainer: Trainer, test: ImageSet, log: journal.Journal, data: str, minutes: float
) -> dict[str, Any]:
    """Bake, evaluate in float32, save the model and the record."""
    plain = baked(trainer.model, run.variant)
    final = evaluate(plain, test.pixels, test.labels, run.recipe, precision="float32").as_dict()
    about = {"run": run.name, **{k: getattr(run, k) for k in ("variant", "seed", "fraction", "subset")}}
    record = {
        **about,
        "hardware": journal.hardware(trainer.device, trainer.world),
        "speed": trainer.describe(),
        "command": command_of(run),
        "same_steps": run.same_steps,
        "std": run.std,
        "data_hash": data,
        "minutes": round(minutes, 2),
        "final": final,
        "recipe": run.recipe.as_dict(),
        "epochs": log.rows,
    }
    with writing(folder):
        classes = {"class_names": list(test.class_names)} if test.class_names else {}
        save_model(plain, folder, run.recipe, {**about, **classes, "metrics": final})
        return journal.write_record(folder / journal.RECORD, record)


def command_of(run: Run) -> str:
    """The command line that repeats this run."""
    standard = RECIPES.get(run.recipe.name, RECIPES["cifar100"])  # a recipe of one's own: changes of the paper's
    words = ["unsmooth", "train", standard.name, "--variant", run.variant, "--seed", str(run.seed)]
    words += ["--fraction", str(run.fraction)] if run.fraction != 1 else []
    words += ["--subset", str(run.subset)] if run.subset else []
    words += ["--same-steps"] if run.same_steps else []
    words += ["--std", str(run.std)] if run.std is not None else []
    for item in dataclasses.fields(run.recipe):
        value = getattr(run.recipe, item.name)
        if item.name != "name" and value != getattr(standard, item.name):
            text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
            words += ["--set", f"{item.name}={text}"]
    return shlex.join([*words, "--data", "PATH"])
