"""Threads that each take a part of a batch: many small eigenproblems use the cores better than one at a time."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from typing import TypeVar

import torch
from torch import Tensor

Part = TypeVar("Part")
Result = TypeVar("Result")
_outside = threading.local()  # how many threads torch would use if `small_problems` had not set it to one


def spread(function: Callable[[Part], Result], parts: Sequence[Part]) -> list[Result]:
    """`function` of each part, a thread for each, up to as many as torch would use; results in order."""
    threads = _threads()
    if threads == 1:
        return [function(part) for part in parts]
    if torch.cuda.is_initialized():
        load_cuda_linalg()
    return list(_pool(threads, os.getpid()).map(function, parts))


def spread_rows(function: Callable[[Tensor], Result], rows: Tensor) -> list[Result]:
    """`function` of even slices of a batch, a thread for each; their results in order, to be joined."""
    return spread(function, [rows[part] for part in even_slices(len(rows), _threads())])


@contextmanager
def small_problems(device: torch.device) -> Iterator[None]:
    """One thread for each LAPACK call of this thread while products run on `device`; `spread` uses as many as ever.

    Matrices of some hundred rows lose to a second thread's barriers: on a host of 16 cores the eigenvalues of 128 rows
    take 9 ms with one thread and 92 ms with all. Nothing changes where products run on the CPU, which need its cores.
    """
    threads = torch.get_num_threads()
    if device.type == "cpu" or threads == 1:
        yield
        return
    _outside.threads = threads
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        del _outside.threads


@cache
def load_cuda_linalg() -> None:
    """Once, before threads: torch loads this library at its first call, and two first calls at once fail (#90613)."""
    torch.linalg.inv(torch.eye(1, device="cuda"))


def _threads() -> int:
    return getattr(_outside, "threads", 0) or torch.get_num_threads()


@cache
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    """One pool per process: a forked child has none of its parent's threads."""
    # LAPACK on one matrix of some hundred rows gains nothing from a second thread, and loses to
    # its barriers.
    return ThreadPoolExecutor(threads, "unsmooth", initializer=torch.set_num_threads, initargs=(1,))


def even_slices(length: int, parts: int) -> list[slice]:
    """At most `parts` slices that cover range(length), sizes differing by one at most.

    >>> even_slices(5, 2)
    [slice(0, 3, None), slice(3, 5, None)]
    """
    parts = max(1, min(parts, length))
    size, longer = divmod(length, parts)
    ends = [size * i + min(i, longer) for i in range(parts + 1)]
    return [slice(a, b) for a, b in pairwise(ends)]
