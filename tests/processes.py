"""Two processes at work for a test, forked from one that has imported the heavy libraries once for all such tests."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing import get_context
from typing import Any

IMPORTED = ["torch.distributed.fsdp", "torch.distributed.tensor.parallel", "timm", "transformers.models.llama"]
IMPORTED += ["transformers.modeling_utils", "unsmooth.analysis", "unsmooth.callbacks", "unsmooth.control"]


def run_twice(work: Callable[..., None], *given: Any) -> None:
    """`work(rank, *given)` in two processes; the first error of one is raised here."""
    from torch import multiprocessing

    get_context("forkserver").set_forkserver_preload(IMPORTED)
    multiprocessing.start_processes(work, given, nprocs=2, start_method="forkserver")
