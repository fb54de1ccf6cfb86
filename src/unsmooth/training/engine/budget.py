"""How long a run is: as its recipe says, so many steps, or as many steps as fit into so many minutes."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unsmooth.errors import OptionError

if TYPE_CHECKING:
    from unsmooth.training.engine.run import Run
    from unsmooth.training.engine.task import Task

MINUTES = {"s": 1 / 60, "m": 1.0, "h": 60.0}
SETTLED = 0.4  # of the minutes: by then the pace is known, with what compiling, looks and checkpoints take
SPARE = 0.98  # of the time left: the model is evaluated and written at the end


@dataclass(frozen=True)
class Budget:
    """Steps or minutes; neither means the recipe's own length."""

    steps: int | None = None
    minutes: float | None = None

    @classmethod
    def parse(cls, text: str | None) -> Budget:
        """From the command line.

        >>> Budget.parse("15m"), Budget.parse("2000").steps
        (Budget(steps=None, minutes=15.0), 2000)
        """
        if text is None:
            return cls()
        try:
            if text[-1:] in MINUTES:
                minutes = float(text[:-1]) * MINUTES[text[-1]]
                if 0 < minutes < math.inf:
                    return cls(minutes=minutes)
            elif (steps := int(text)) > 0:
                return cls(steps=steps)
        except ValueError:
            pass
        raise OptionError(f"expected a budget such as 15m, 90s, 2h or 2000 (steps), got {text!r}")


class Pace:
    """Turns minutes into steps while a run is young, once: from then on it is a run of so many steps.

    A number of steps can be repeated and resumed, and the learning rate falls to zero at its end; a clock cannot.
    """

    def __init__(self, minutes: float) -> None:
        self.minutes = minutes
        self.first: tuple[int, float] | None = None  # steps and minutes after the first chunk, which compiles
        self.total: int | None = None  # once it is settled

    def estimate(self, step: int, elapsed: float) -> int:
        """Steps of the whole run, as far as is known after `step` steps in `elapsed` minutes."""
        if self.total is not None:
            return self.total
        if self.first is None:
            self.first = (step, elapsed)
            # most of the time so far may be no step's: one more says what a step takes
            least = step + 1 if elapsed < self.minutes else step
            return max(least, int(step * self.minutes / max(elapsed, 1e-6)))
        pace = (step - self.first[0]) / max(elapsed - self.first[1], 1e-6)
        total = step + max(0, int(SPARE * (self.minutes - elapsed) * pace))
        if elapsed >= SETTLED * self.minutes:
            self.total = total
        return total


class Clock:
    """Minutes of a run, those before it was resumed included."""

    def __init__(self, started: float, before: float) -> None:
        self.started, self.before = started, before

    def elapsed(self) -> float:
        """Until now."""
        return self.before + (time.monotonic() - self.started) / 60

    def minutes(self) -> float:
        """The same, for people."""
        return round(self.elapsed(), 3)


class Length:
    """How many steps the run has and the learning rate of each; minutes become steps once the pace is known."""

    def __init__(self, run: Run, task: Task, clock: Clock, settled: int | None) -> None:
        self.task, self.clock = task, clock
        self.pace = None if run.allowed.minutes is None else Pace(run.allowed.minutes)
        if self.pace is not None:
            self.pace.total = settled
        self._set(settled or run.allowed.steps or (task.total if self.pace is None else 20 * task.chunk))

    def _set(self, total: int) -> None:
        self.total, self.rates = total, self.task.rates(total)

    def revise(self, done: int) -> None:
        """After a chunk of a run that is given minutes."""
        if self.pace is not None and (total := self.pace.estimate(done, self.clock.elapsed())) != self.total:
            self._set(total)

    @property
    def units(self) -> int:
        """The length as people count it."""
        return -(-self.total // self.task.per_unit)

    def state(self) -> dict[str, Any]:
        """For checkpoints: how many steps minutes were worth."""
        return {"total": self.units} | ({"steps": self.pace.total} if self.pace and self.pace.total else {})
