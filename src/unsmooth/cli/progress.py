"""A progress bar with rate and time left, and work that ends early without being lost."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import typer
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

from unsmooth.errors import DataError

if TYPE_CHECKING:
    from unsmooth.analysis.processes import Team


class Rate(ProgressColumn):
    """Samples per second."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:.1f}/s" if task.speed else "", style="progress.data.speed")


def track(batches: Iterable[Any], label: str, total: int | None, quiet: bool = False) -> Iterator[Any]:
    """Yield the batches while a bar on stderr counts their samples; silent where stderr is not a terminal."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        Rate(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as progress:
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
    """Whether work ended early, and why: a signal (Ctrl-C, or SIGTERM of a scheduler), or data that cannot be read."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self.error: DataError | None = None

    def __bool__(self) -> bool:
        return self.signal is not None or self.error is not None

    def until(self, batches: Iterable[Any]) -> Iterator[Any]:
        """The batches up to where work ends; without a first one there is nothing to keep, and the error is raised."""
        stream, begun = iter(batches), False
        while not self:
            try:
                batch = next(stream)
            except StopIteration:
                return
            except DataError as error:
                if not begun:
                    raise
                self.error = error
                return
            if not self:
                yield batch
            begun = True

    def track(self, batches: Iterable[Any], label: str, total: int | None) -> Iterator[Any]:
        """`until`, with a progress bar."""
        return self.until(track(batches, label, total))

    def check(self, batches: int, team: Team) -> None:
        """After work on so many batches: KeyboardInterrupt on every process if a signal came before one had any.

        There is nothing to keep then. Where no signal came, `Team.check` says who got no batch.
        """
        if team.anybody(self.signal is not None and not batches):
            raise KeyboardInterrupt
        team.check(batches)

    def leave(self) -> None:
        """After what was finished is written: the error, or the exit code that says a signal came."""
        if self.error is not None:
            raise self.error
        if self.signal is not None:
            sys.exit(128 + self.signal)


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """The first signal only sets a flag, so that what was measured can be kept; the second one stops at once."""
    state = Interruption()

    def on_signal(number: int, frame: FrameType | None) -> None:
        if state.signal is not None:
            raise KeyboardInterrupt
        state.signal = number
        # not through sys.stderr, which may be at work
        os.write(2, b"\nstopping after this batch, to keep what was done; Ctrl-C again stops at once\n")

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield state
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def stoppable(kept: Callable[[], str]) -> Iterator[None]:
    """Ctrl-C and a scheduler's SIGTERM stop a run: what is kept of it is said, and the exit code is 130 or 143."""

    def stop(number: int, _frame: Any) -> NoReturn:
        raise KeyboardInterrupt(128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)
    except KeyboardInterrupt as stopped:
        typer.echo(f"stopped: {kept()}", err=True)
        raise typer.Exit(stopped.args[0] if stopped.args else 130) from None
