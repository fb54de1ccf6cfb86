"""`SmoothingCallback` for Hugging Face's `Trainer`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

from unsmooth.errors import MissingExtraError

try:
    from transformers import TrainerCallback
    from transformers.integrations import get_reporting_integration_callbacks
except ImportError as error:
    raise MissingExtraError.needed("transformers", "text", "the Trainer callback") from error

from unsmooth.callbacks.alarm import stop_on_alarm
from unsmooth.callbacks.trackers import Log, find_log
from unsmooth.callbacks.watcher import Watcher, watch


class SmoothingCallback(TrainerCallback):
    """`Trainer(..., callbacks=[SmoothingCallback(batch)])`: readings go where the Trainer's own numbers go.

    That is `state.log_history`, and whatever `report_to` names (TensorBoard, Weights & Biases, …); and to `log`.

    Takes the arguments of `unsmooth.watch` but the model and `count`. An alarm with the action `stop` ends the
    training as the Trainer does it (`control.should_training_stop`), with a warning that says why.
    """

    def __init__(self, batch: Any, every: int | None = None, log: Log | str | None = None, **settings: Any) -> None:
        self.watcher: Watcher | None = None
        self._batch, self._every, self._log, self._settings = batch, every, find_log(log), settings

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """The first reading, before the first step."""
        reporters = _reporters(self, args)

        def log(values: Mapping[str, float], step: int) -> None:
            state.log_history.append({**values, "step": step})
            for reporter in reporters:
                reporter.on_log(args, state, control, model=model, logs=dict(values))
            if self._log is not None:
                self._log(values, step)

        self.watcher = watch(model, self._batch, self._every, log, count="manual", **self._settings)
        self.watcher.steps = state.global_step  # more than 0 when the training is resumed
        stop_on_alarm(self.watcher.__enter__, control, "should_training_stop")

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A reading when it is time."""
        if self.watcher is not None:
            stop_on_alarm(partial(self.watcher.step, state.global_step), control, "should_training_stop")


def _reporters(mine: TrainerCallback, args: Any) -> list[Any]:
    """The Trainer's callbacks that `report_to` stands for.

    A callback is given neither the Trainer nor its other callbacks; the handler that calls it has them.
    """
    kinds = tuple(get_reporting_integration_callbacks(args.report_to))
    frame = sys._getframe(1)
    while frame is not None:
        callbacks = getattr(frame.f_locals.get("self"), "callbacks", None)
        if isinstance(callbacks, list) and any(callback is mine for callback in callbacks):
            return [callback for callback in callbacks if isinstance(callback, kinds)]
        frame = frame.f_back  # type: ignore[assignment]
    return []
