"""Processes for tests, forked from one that has imported the heavy libraries once for all of them.

A fresh interpreter takes seconds of CPU time to import torch, timm and transformers; a fork of one that has them takes
none, and can be killed, interrupted or limited like any other process.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NoReturn

IMPORTED = ["torch.distributed.fsdp", "torch.distributed.tensor.parallel", "timm", "transformers.models.llama"]
IMPORTED += ["transformers.modeling_utils", "unsmooth.analysis", "unsmooth.callbacks", "unsmooth.cli.app"]
IMPORTED += ["unsmooth.control", "unsmooth.training"]
CLI = "import unsmooth.cli; unsmooth.cli.main()"


def run_twice(work: Callable[..., None], *given: Any) -> None:
    """`work(rank, *given)` in two processes; the first error of one is raised here."""
    from torch import multiprocessing

    get_context("forkserver").set_forkserver_preload(IMPORTED)
    multiprocessing.start_processes(work, given, nprocs=2, start_method="forkserver")


class Program:
    """A Python program with its arguments, at work in a process of its own; what it says goes to two files."""

    def __init__(
        self, source: str, words: Sequence[object], folder: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        context = get_context("forkserver")
        context.set_forkserver_preload(IMPORTED)
        folder.mkdir(exist_ok=True, parents=True)
        self._files = folder / "said.out", folder / "said.err"
        given = (source, [os.fspath(word) for word in words], self._files, dict(environment or {}))  # type: ignore[call-overload]
        self.process = context.Process(target=_run, args=given)
        self.process.start()

    @property
    def stdout(self) -> str:
        """All that it has said so far."""
        return _read(self._files[0])

    @property
    def stderr(self) -> str:
        """All that it has said on the other channel."""
        return _read(self._files[1])

    def lines(self, channel: str = "stdout") -> Iterator[str]:
        """Line by line while it runs."""
        seen = 0
        while True:
            alive = self.process.is_alive()
            whole = getattr(self, channel).split("\n")[:-1]
            yield from whole[seen:]
            seen = len(whole)
            if not alive:
                return
            time.sleep(0.01)

    def send(self, number: int) -> None:
        """A signal."""
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def wait(self) -> int:
        """The exit code; minus the number of the signal that ended it."""
        self.process.join(300)
        assert self.process.exitcode is not None
        return self.process.exitcode


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="surrogateescape") if path.exists() else ""


def _run(source: str, words: list[str], files: Sequence[Path], environment: dict[str, str]) -> NoReturn:
    os.environ.update(environment)
    for number, path in enumerate(files, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.stdout, sys.stderr = (open(number, "w", buffering=1, encoding="utf-8", closefd=False) for number in (1, 2))  # noqa: SIM115
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the server ignores it
    sys.argv = ["-c", *words]
    exec(compile(source, "<test>", "exec"), {"__name__": "__main__"})
    sys.exit(0)
