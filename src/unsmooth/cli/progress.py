"""A progress bar with rate and time left, and a first Ctrl-C that lets the running batch finish."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from types import FrameType
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text


class Rate(ProgressColumn):
    """Samples per second."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:.1f}/s" if task.speed else "", style="progress.data.speed")


def track(batches: Iterable[Any], label: str, total: int | None) -> Iterator[Any]:
    """Yield the batches while a bar on stderr counts their samples; silent where stderr is not a terminal."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        Rate(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(label, total=total)
        for batch in batches:
            yield batch
            progress.advance(task, samples_in(batch))


def samples_in(batch: Any) -> int:
    """How many samples a batch holds; anything else is one thing."""
    if not isinstance(batch, Sized):
        return 1
    tensor = next(iter(batch.values())) if isinstance(batch, dict) else batch
    return len(tensor)


class Interruption:
    """Whether Ctrl-C was pressed; false until then."""

    pressed = False

    def __bool__(self) -> bool:
        return self.pressed


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """The first Ctrl-C only sets a flag, so that what was measured can be kept; the second one stops at once."""
    state = Interruption()
    before = signal.getsignal(signal.SIGINT)

    def on_signal(number: int, frame: FrameType | None) -> None:
        if state.pressed:
            raise KeyboardInterrupt
        state.pressed = True

    signal.signal(signal.SIGINT, on_signal)
    try:
        yield state
    finally:
        signal.signal(signal.SIGINT, before)
