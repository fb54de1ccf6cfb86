"""`watch`: the metrics on a fixed batch, every so many optimiser steps, while a model trains."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import index
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, SupportsIndex
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from unsmooth.analysis import measure
from unsmooth.callbacks.alarm import Alarm, Reading, SmoothingAlarm, judge_of
from unsmooth.callbacks.preserve import preserve_rng
from unsmooth.callbacks.processes import Outcome, agree, first
from unsmooth.callbacks.trackers import Log, find_log
from unsmooth.errors import FeatureError, OptionError, UnsmoothError
from unsmooth.models.storage import is_sharded
from unsmooth.models.view import module_of
from unsmooth.models.wrappers import uncompiled
from unsmooth.prose import counted

if TYPE_CHECKING:
    import pandas as pd

DEFAULT_EVERY = 500
BUDGET = 0.02  # of the training time, at the default rate


def watch(
    model: nn.Module,
    batch: Any,
    every: int | None = None,
    log: Log | str | None = None,
    alarm: Alarm | None = None,
    *,
    action: Literal["stop", "warn"] = "stop",
    count: Literal["optimizer", "manual"] = "optimizer",
    metrics: str | Sequence[str] = "paper",
    tokens: str | Sequence[str] = "all",
    points: str | Sequence[str] = "blocks.*.post",
    special_ids: Iterable[int] | None = None,
    tokenizer: Any = None,
) -> Watcher:
    """Watch how smooth a model's features are while it trains: `with unsmooth.watch(model, batch, log=fn): …`.

    The batch is measured on entering and then every so many steps, in evaluation mode and in the weights' dtype.
    Weights, gradients, buffers, modes and random states are those of a training run without it.

    Args:
        model: the model that trains. Inside `DistributedDataParallel` or `torch.compile` the wrapped model is measured;
            a sharded model (`fully_shard`, tensor parallel) is measured on all processes.
        batch: the fixed probe: one batch of those that `unsmooth.measure` takes.
        every: steps between two readings, followed exactly. By default 500, or a multiple of it, so that all later
            readings together cost at most 2 % of the time.
        log: called as `log(values, step)` with a dict of means by name; or a tracker's name (`wandb`, `mlflow`,
            `trackio`, `tensorboard:FOLDER`), see `unsmooth.callbacks.to_wandb` and its relatives.
        alarm: bounds, or a function of the reading that returns a message when something is wrong.
        action: `stop` raises SmoothingAlarm (on every process); `warn` warns.
        count: `optimizer` counts the steps of torch optimisers that hold a parameter of the model; with several of
            them, of the busiest. `manual` leaves it to `step()`: for captured or compiled steps, or other optimisers.
        metrics: as for `unsmooth.measure`.
        tokens: as for `unsmooth.measure`.
        points: as for `unsmooth.measure`; the blocks' outputs by default.
        special_ids: as for `unsmooth.measure`.
        tokenizer: as for `unsmooth.measure`.

    With several processes, enter it on all of them: the first measures and logs, the others wait for its word, or take
    part where each holds a part of the weights (there the probe must be the same on all).
    """
    special = None if special_ids is None else tuple(special_ids)
    settings = {
        "metrics": metrics, "tokens": tokens, "points": points, "special_ids": special, "tokenizer": tokenizer
    }  # fmt: skip
    return Watcher(model, batch, every, find_log(log), alarm, action, count, settings)


class Watcher:
    """What `watch` returns; `history` holds the readings (on the process that measures)."""

    _unused = False  # made to count optimiser steps, and neither entered nor read so far

    def __init__(
        self,
        model: nn.Module,
        batch: Any,
        every: int | None,
        log: Log | None,
        alarm: Alarm | None,
        action: str,
        count: str,
        settings: Mapping[str, Any],
    ) -> None:
        if every is not None and not (isinstance(every, SupportsIndex) and index(every) >= 1):
            raise OptionError(f"every must be a number of steps, at least 1, got {every!r}")
        if action not in ("stop", "warn"):
            raise OptionError.unknown("action of an alarm", action, ("stop", "warn"))
        if count not in ("optimizer", "manual"):
            raise OptionError.unknown("way to count steps", count, ("optimizer", "manual"))
        self.model: nn.Module = module_of(model)
        self._sharded = any(is_sharded(parameter) for parameter in self.model.parameters())
        if type(self.model).__name__ == "FullyShardedDataParallel":
            raise UnsmoothError(
                "FullyShardedDataParallel keeps its weights flat, no longer as those of the model inside: use "
                "fully_shard (FSDP2), which can be watched, or save checkpoints and use `unsmooth track`"
            )
        self.steps = 0
        self.history: list[Reading] = []
        self._batch, self._log, self._action, self._count = batch, log, action, count
        self._judge = judge_of(alarm)
        self._every, self._kept_exactly = every or DEFAULT_EVERY, every is not None
        self._settings = dict(settings)
        self._by_optimizer: WeakKeyDictionary[torch.optim.Optimizer, int] = WeakKeyDictionary()
        self._started = 0.0
        self._said: set[str] = set()
        self._hook: Any = None
        self._unused = count == "optimizer"

    def __repr__(self) -> str:
        last = f", the last at step {self.history[-1].step}" if self.history else ""
        named = f"Watcher of {type(self.model).__name__}: {counted(len(self.history), 'reading')}{last}"
        return "\n".join([named, "  .history, .frame(), .cost, .read()"])

    def __del__(self) -> None:
        if self._unused:
            warnings.warn(
                "watch was never entered, so nothing was measured: write `with unsmooth.watch(model, batch): …` around "
                "the training",
                stacklevel=2,
            )

    def __enter__(self) -> Self:
        self._read()
        self._started = time.perf_counter()
        if self._count == "optimizer":
            self._hook = register_optimizer_step_post_hook(uncompiled(self._after_optimizer))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._hook is not None:
            self._hook.remove()
        if kind is None and self.steps == 0:
            warnings.warn(
                "no training step was seen: watch counts the steps of torch optimisers that hold a parameter of the "
                "model; for other ones use count='manual' and call step()",
                stacklevel=2,
            )

    def step(self, number: int | None = None) -> None:
        """One more step was taken, or `number` in all; measures when it is time."""
        before, self.steps = self.steps, self.steps + 1 if number is None else number
        if before // self._every < self.steps // self._every:
            self._read()

    def read(self) -> Reading | None:
        """Measure now, whatever the step; None on the processes that do not measure."""
        self._read(now=True)
        return self.history[-1] if self.history else None

    @property
    def cost(self) -> float:
        """The share of the time since entering that the readings took, the one on entering left out."""
        return self._spent() / max(time.perf_counter() - self._started, 1e-9)

    def frame(self) -> pd.DataFrame:
        """All readings as one table: step, then the columns of `Measurement.frame`."""
        import pandas as pd

        if not self.history:
            raise UnsmoothError("nothing was read yet: enter the `with` block (on the first process) before")
        return pd.concat([r.measurement.frame(full=True).assign(step=r.step) for r in self.history], ignore_index=True)

    def _after_optimizer(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if optimizer not in self._by_optimizer:
            mine = {id(p) for p in self.model.parameters()}
            if not any(id(p) in mine for group in optimizer.param_groups for p in group["params"]):
                return
            # The first optimiser of a step counts it; another one that is seen after it belongs to the same step.
            self._by_optimizer[optimizer] = max(self.steps - 1, 0)
        self._by_optimizer[optimizer] += 1
        if self._by_optimizer[optimizer] > self.steps:
            self.step()

    def _read(self, now: bool = False) -> None:
        self._unused = False
        outcome, message, error = Outcome.FINE, "", None
        reading: Reading | None = None
        wanted = first() and (now or self._affordable())
        if agree(wanted) if self._sharded else wanted:
            gathering = self._sharded
            try:
                reading, message = self._measure()
                gathering = False
                if reading is not None:
                    message = self._tell(reading)
                outcome = Outcome.ALARM if message and self._action == "stop" else Outcome.FINE
            except BaseException as failure:
                if gathering:  # the others wait for this process's part of a weight, and would take a word for it
                    raise
                outcome, error = Outcome.FAILED, failure
        outcome = Outcome(agree(outcome))
        if error is not None:
            raise error
        if outcome is Outcome.FAILED:
            raise UnsmoothError(f"measuring failed on another process at step {self.steps}: see its error")
        if outcome is Outcome.ALARM:
            raise SmoothingAlarm(message or f"a bound was crossed at step {self.steps}: see the first process", reading)
        if message:
            warnings.warn(message, stacklevel=4)

    def _measure(self) -> tuple[Reading | None, str]:
        """Measure, all processes where each holds a part of the weights; a message where nothing could be measured."""
        start = _clock(self.model)
        try:
            with self._saying_once(), preserve_rng(self.model):
                measurement = measure(
                    self.model, [self._batch], **{"degenerate": "keep", "rank_budget": "exact", **self._settings}
                )
        except FeatureError as failure:
            # A training that diverges must not end in its watcher, unless an alarm was asked for.
            message = f"step {self.steps}: nothing could be measured: {failure}"
            if self._judge is None or not first():
                warnings.warn(message, stacklevel=6)
                return None, ""
            return None, message
        reading = Reading(self.steps, measurement, _clock(self.model) - start)
        return reading if first() else None, ""

    def _tell(self, reading: Reading) -> str:
        """Keep it, log it, and say what is beyond the bounds."""
        self.history.append(reading)
        self._write(reading)
        said = self._judge(reading) if self._judge is not None else None
        return f"step {reading.step}: {said}" if said else ""

    @contextmanager
    def _saying_once(self) -> Iterator[None]:
        """What measuring warns of (padding in the probe) is said at the first reading only."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
        for warning in caught:
            self._once(str(warning.message), warning.category)

    def _write(self, reading: Reading) -> None:
        """Call `log`; a writer that fails (a full disk, a server that is away) must not end a training."""
        if self._log is None:
            return
        try:
            self._log(reading.values(), reading.step)
        except SmoothingAlarm:
            raise
        except Exception as error:
            self._once(
                f"log failed at step {reading.step} ({type(error).__name__}: {error}): the training goes on, and the "
                "reading is kept in `history`; this is said once",
                key="log failed",
            )

    def _once(self, message: str, category: type[Warning] = UserWarning, key: str = "") -> None:
        if (key or message) not in self._said:
            self._said.add(key or message)
            warnings.warn(message, category, stacklevel=7)

    def _affordable(self) -> bool:
        """At the default rate: whether another reading keeps the cost within the budget."""
        if self._kept_exactly or not self.history:
            return True
        elapsed = time.perf_counter() - self._started
        return self._spent() + self.history[-1].seconds <= BUDGET * elapsed

    def _spent(self) -> float:
        return sum(reading.seconds for reading in self.history[1:])


def _clock(model: nn.Module) -> float:
    """Seconds, once the device has finished what was asked of it before."""
    parameter = next(model.parameters(), None)
    if parameter is not None and parameter.device.type == "cuda":
        torch.cuda.synchronize(parameter.device)
    return time.perf_counter()
