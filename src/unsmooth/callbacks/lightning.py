"""`SmoothingCallback` for Lightning's `Trainer`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from unsmooth.errors import MissingExtraError

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:
    try:
        from pytorch_lightning.callbacks import Callback
    except ImportError as error:
        raise MissingExtraError(
            "the Lightning callback needs lightning, which is not installed: pip install lightning"
        ) from error

from unsmooth.callbacks.alarm import stop_on_alarm
from unsmooth.callbacks.trackers import Log, find_log
from unsmooth.callbacks.watcher import Watcher, watch


class SmoothingCallback(Callback):
    """`Trainer(..., callbacks=[SmoothingCallback(batch)])`: readings go to the trainer's loggers and to `log`.

    Takes the arguments of `unsmooth.watch` but the model and `count`. `part` names the submodule to look at (as
    `get_submodule` takes it); the whole LightningModule by default, called with the batch. An alarm with the action
    `stop` sets `trainer.should_stop`, with a warning that says why.
    """

    def __init__(
        self, batch: Any, every: int | None = None, log: Log | str | None = None, part: str = "", **settings: Any
    ) -> None:
        self.watcher: Watcher | None = None
        self._batch, self._every, self._log, self._part, self._settings = batch, every, find_log(log), part, settings

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """The first reading, before the first step."""

        def log(values: Mapping[str, float], step: int) -> None:
            for logger in trainer.loggers:
                logger.log_metrics(dict(values), step=step)
            if self._log is not None:
                self._log(values, step)

        model = pl_module.get_submodule(self._part)
        self.watcher = watch(model, self._batch, self._every, log, count="manual", **self._settings)
        self.watcher.steps = trainer.global_step
        stop_on_alarm(self.watcher.__enter__, trainer, "should_stop")

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        """A reading when it is time; with accumulated gradients only every few batches are a step."""
        if self.watcher is not None and trainer.global_step > self.watcher.steps:
            stop_on_alarm(partial(self.watcher.step, trainer.global_step), trainer, "should_stop")
