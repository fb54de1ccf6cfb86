"""Readings, and what makes one of them an alarm."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from unsmooth.analysis import Measurement
from unsmooth.callbacks.bounds import Bound, crossings
from unsmooth.errors import OptionError, UnsmoothError


@dataclass(frozen=True)
class Reading:
    """What was measured after so many steps, and the seconds that it took."""

    step: int
    measurement: Measurement
    seconds: float

    def values(self) -> dict[str, float]:
        """Means by name: `unsmooth/METRIC/POINT`, with the token policy before the point unless it is `all`."""
        return {
            "/".join(("unsmooth", cell.metric, *([] if cell.tokens == "all" else [cell.tokens]), cell.point)): m.mean
            for cell, m in self.measurement.cells.items()
        }


class SmoothingAlarm(UnsmoothError):
    """Raised by `watch` when a bound is crossed; `reading` holds the numbers on the process that measured."""

    def __init__(self, message: str, reading: Reading | None = None) -> None:
        super().__init__(message)
        self.reading = reading


Judge = Callable[[Reading], str | None]
Alarm = Bound | Iterable[Bound] | Judge


def judge_of(alarm: Alarm | None) -> Judge | None:
    """Bounds as a function that says what is wrong with a reading, if anything; a function stays as it is."""
    if alarm is None or callable(alarm):
        return alarm
    bounds = tuple(alarm) if isinstance(alarm, Iterable) else (alarm,)
    for bound in bounds:
        if not isinstance(bound, Bound):
            raise OptionError(f"an alarm is a Bound, several of them, or a function of the reading; got {bound!r}")
    # A bound on something that is not measured is an error of the first reading, not a silence: see `crossings`.
    return lambda reading: "; ".join(map(str, crossings(reading.measurement, bounds)))


def stop_on_alarm(look: Callable[[], object], trainer: object, flag: str) -> None:
    """Take a reading; an alarm becomes the trainer's own way to stop, which is that this flag of it is set."""
    try:
        look()
    except SmoothingAlarm as alarm:
        setattr(trainer, flag, True)
        warnings.warn(f"the training stops: {alarm}", stacklevel=3)
