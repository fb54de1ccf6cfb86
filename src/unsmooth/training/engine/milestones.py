"""Models of a run on its way, baked and without optimiser: a folder each, of which `unsmooth track` makes curves."""

from __future__ import annotations

import copy
import os
import shutil
from pathlib import Path

from torch import nn

from unsmooth.errors import OptionError
from unsmooth.sources.trained import MILESTONES
from unsmooth.training.engine.checkpoint import writing
from unsmooth.training.engine.run import Run
from unsmooth.training.engine.task import Task


class Milestones:
    """Keeps the model of every so many units (epochs or steps), when the run is looked at, and its first and last."""

    def __init__(self, run: Run, task: Task, folder: Path, every: int | None, done: int) -> None:
        if every is not None and every < 1:
            raise OptionError(f"expected at least 1 {task.unit} between two models that are kept, got {every}")
        self.run, self.task, self.folder, self.every = run, task, folder / MILESTONES, every
        self.last = self._number(done) if done else -1  # which multiple of `every` was kept last

    def _number(self, step: int) -> int:
        return step // ((self.every or 1) * self.task.per_unit)

    def due(self, step: int, total: int) -> bool:
        """Whether the model after so many of all steps is one of them."""
        return self.every is not None and (step == total or self._number(step) > self.last)

    def keep(self, model: nn.Module, step: int) -> None:
        """Write a copy as it would be saved at the end; a folder appears when it is complete."""
        self.last = self._number(step)
        place = self.folder / f"step-{step}"
        draft = self.folder / f".{place.name}.part"
        with writing(place):
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir(parents=True)
            baked = self.run.control.bake(copy.deepcopy(model))
            self.task.save(baked, draft, {"run": self.run.name, "variant": self.run.variant, "step": step})
            shutil.rmtree(place, ignore_errors=True)  # of a run that was resumed from before it
            os.replace(draft, place)
