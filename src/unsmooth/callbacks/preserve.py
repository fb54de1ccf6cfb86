"""Looking at a model in the middle of its training without changing what comes after."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import torch
from torch import nn

from unsmooth.errors import UnsmoothError


def plain(model: nn.Module) -> nn.Module:
    """The model inside wrappers that must not be called by one process alone, or that hooks cannot see into.

    A call of `DistributedDataParallel` may wait for the other processes; a compiled module runs without hooks.
    """
    inner = model
    while True:
        if isinstance(inner, nn.parallel.DistributedDataParallel | nn.DataParallel):
            inner = inner.module
        elif type(inner).__name__ == "OptimizedModule":
            inner = inner.get_submodule("_orig_mod")
        else:
            break
    for name, parameter in inner.named_parameters():
        if type(parameter).__name__ == "DTensor" or type(inner).__name__ == "FullyShardedDataParallel":
            raise UnsmoothError(
                f"expected whole weights on every process, but {name!r} is sharded (FSDP or tensor parallel): one "
                "process cannot measure it alone; save a checkpoint and use `unsmooth measure`"
            )
    return inner


@contextmanager
def preserve_rng(model: nn.Module) -> Iterator[None]:
    """Random states, autocast and in-place compilation as before on leaving; modes and hooks are the measurer's.

    Inside, autocast is off: features are measured in the dtype of the weights.
    """
    devices = sorted({p.device for p in model.parameters() if p.device.type == "cuda"}, key=str)
    compiled = {m: impl for m in model.modules() if (impl := getattr(m, "_compiled_call_impl", None)) is not None}
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 (the state that others use)
    try:
        with ExitStack() as stack:
            stack.enter_context(torch.random.fork_rng(devices))
            for kind in {"cpu", *(device.type for device in devices)}:
                stack.enter_context(torch.autocast(kind, enabled=False))
            for module in compiled:
                module._compiled_call_impl = None
            yield
    finally:
        for module, impl in compiled.items():
            module._compiled_call_impl = impl
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
