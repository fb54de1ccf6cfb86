"""Looking at a model in the middle of its training without changing what comes after."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import torch
from torch import nn

from unsmooth.models.wrappers import own_forward


@contextmanager
def preserve_rng(model: nn.Module) -> Iterator[None]:
    """Random states, autocast and shards as before on leaving; modes and hooks are the measurer's.

    Inside, autocast is off, also accelerate's: features are measured in the dtype of the weights.
    """
    devices = sorted({p.device for p in model.parameters() if p.device.type == "cuda"}, key=str)
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 (the state that others use)
    try:
        with ExitStack() as stack:
            stack.enter_context(torch.random.fork_rng(devices))
            for kind in {"cpu", *(device.type for device in devices)}:
                stack.enter_context(torch.autocast(kind, enabled=False))
            stack.enter_context(own_forward(model))
            yield
    finally:
        for module in model.modules():
            if any(base.__name__ == "FSDPModule" for base in type(module).__mro__):
                module.reshard()  # type: ignore[operator]  # a forward pass leaves the outermost weights whole
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
