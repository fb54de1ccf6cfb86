"""`SmoothingCallback` for Hugging Face's `Trainer`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from unsmooth.errors import MissingExtraError

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise MissingExtraError.needed("transformers", "text", "the Trainer callback") from error

from unsmooth.callbacks.alarm import SmoothingAlarm
from unsmooth.callbacks.watcher import Watcher, watch
from unsmooth.callbacks.writers import Log


class SmoothingCallback(TrainerCallback):
    """`Trainer(..., callbacks=[SmoothingCallback(batch)])`: readings go to `state.log_history` and to `log`.

    Takes the arguments of `unsmooth.watch` but the model and `count`. An alarm with the action `stop` ends the
    training as the Trainer does it (`control.should_training_stop`), with a warning that says why.
    """

    def __init__(self, batch: Any, every: int | None = None, log: Log | None = None, **settings: Any) -> None:
        self.watcher: Watcher | None = None
        self._batch, self._every, self._log, self._settings = batch, every, log, settings

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """The first reading, before the first step."""

        def log(values: Mapping[str, float], step: int) -> None:
            state.log_history.append({**values, "step": step})
            if self._log is not None:
                self._log(values, step)

        self.watcher = watch(model, self._batch, self._every, log, count="manual", **self._settings)
        self.watcher.steps = state.global_step  # more than 0 when the training is resumed
        _stopping(control, self.watcher.__enter__)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A reading when it is time."""
        if self.watcher is not None:
            _stopping(control, partial(self.watcher.step, state.global_step))


def _stopping(control: Any, look: Callable[[], object]) -> None:
    """An alarm becomes the Trainer's own way to stop."""
    try:
        look()
    except SmoothingAlarm as alarm:
        control.should_training_stop = True
        warnings.warn(f"the training stops: {alarm}", stacklevel=3)
