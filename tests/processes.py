"""Processes for tests, forked from one that has imported the heavy libraries once for all of them.

A fresh interpreter takes seconds of CPU time to import torch, timm and transformers; a fork of one that has them takes
none, and can be killed, interrupted or limited like any other process.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

IMPORTED = ["torch.distributed.fsdp", "torch.distributed.tensor.parallel", "timm", "transformers.models.llama"]
IMPORTED += ["transformers.modeling_utils", "unsmooth.analysis", "unsmooth.callbacks", "unsmooth.cli.app"]
IMPORTED += ["unsmooth.control", "unsmooth.training"]
#: A process that is quick must not leave before the other one knows it, and none needs a network.
MEETING = {"TORCH_DIST_INIT_BARRIER": "1", **({"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {})}
ATTEMPT, ATTEMPTS = "UNSMOOTH_TEST_ATTEMPT", 3
CLI = "import unsmooth.cli; unsmooth.cli.main()"


def run_twice(work: Callable[..., None], *given: Any, processes: int = 2) -> None:
    """`work(rank, *given)` in two processes, or more; the first error of one is raised here.

    Gloo's own thread aborts the process when a connection is not as it expects (pytorch/gloo issue 514 is such a case):
    seen once in hundreds of starts. After an abort, and after nothing else, all are started again, twice at most.
    """
    from torch import multiprocessing

    get_context("forkserver").set_forkserver_preload(IMPORTED)
    for attempt in range(ATTEMPTS):
        with TemporaryDirectory() as folder:
            environment = {**os.environ, **MEETING, ATTEMPT: str(attempt)}
            try:
                return multiprocessing.start_processes(
                    _here, (folder, environment, work, *given), nprocs=processes, start_method="forkserver"
                )
            except multiprocessing.ProcessExitedException as error:
                said = "".join(_read(path) for path in sorted(Path(folder).iterdir()))
                if error.signal_name != "SIGABRT":
                    raise
                print(f"attempt {attempt + 1}: {error}\n{said}", file=sys.stderr)
    raise Aborted(f"a process was aborted in each of {ATTEMPTS} attempts; they said: {said[-2000:]}")


class Aborted(Exception):
    """A process ended itself, with no error of Python's: some library in C++ did."""


def _here(rank: int, folder: str, environment: dict[str, str], work: Callable[..., None], *given: Any) -> None:
    os.environ |= environment  # of the test: the server's is older
    os.dup2(os.open(f"{folder}/{rank}", os.O_WRONLY | os.O_CREAT), 2)
    work(rank, *given)


@contextmanager
def joined(rank: int, folder: str, processes: int = 2) -> Iterator[None]:
    """This process in a group of all that `run_twice` started."""
    import torch.distributed as dist

    from unsmooth.analysis.processes import let_go

    meet = f"file://{folder}/meet-{os.environ[ATTEMPT]}"  # the file of a group that has met cannot be used again
    dist.init_process_group("gloo", meet, timedelta(minutes=2), processes, rank)  # one who waits for ever ends
    try:
        yield
        dist.barrier()
        let_go()
    finally:
        dist.destroy_process_group()


def free_port() -> str:
    """A port that nobody listens on."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


def train_in_two(recipe: Any, data: Path, out: Path, processes: int = 2, variant: str = "plain") -> list[str]:
    """A run of two or more processes, as launched, and how it ended for each: a record, none, or an error."""
    with TemporaryDirectory() as folder:
        run_twice(_train, free_port(), processes, recipe, variant, data, out, folder, processes=processes)
        return [Path(folder, str(rank)).read_text() for rank in range(processes)]


def _train(rank: int, port: str, processes: int, recipe: Any, variant: str, data: Path, out: Path, folder: str) -> None:
    import torch

    from unsmooth.training import Run, launch

    places = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(processes)}
    os.environ |= places | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "ACCELERATE_USE_CPU": "true"}
    torch.set_num_threads(1)
    try:
        record = launch(Run(recipe, variant), data, out, device="cpu", tensorboard=False)
        said = "record" if record else "no record"
    except Exception as error:  # whatever ends a process: what is told is told to the test
        said = f"{type(error).__name__}: {error}"
    Path(folder, str(rank)).write_text(said)


class Program:
    """A Python program with its arguments, at work in a process of its own; what it says goes to two files."""

    def __init__(
        self, source: str, words: Sequence[object], folder: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        context = get_context("forkserver")
        context.set_forkserver_preload(IMPORTED)
        folder.mkdir(exist_ok=True, parents=True)
        self._files = folder / "said.out", folder / "said.err"
        given = (source, [os.fspath(word) for word in words], self._files, {**os.environ, **(environment or {})})  # type: ignore[call-overload]
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
