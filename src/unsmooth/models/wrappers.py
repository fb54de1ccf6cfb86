"""Models inside what `torch.compile`, `DistributedDataParallel` and trainers made of them, where hooks can see.

Compiled code was made without our hooks, so they never fire in it. While somebody listens, torch runs the original
code instead; what was compiled stays, and no guard of it fails afterwards.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

import torch
from torch import nn

from unsmooth.errors import CompiledModelError

P = ParamSpec("P")
R = TypeVar("R")


def unwrapped(model: Any) -> Any:
    """The module inside; whatever is no such wrapper comes back as it is.

    A call of `DistributedDataParallel` may wait for the other processes, a call of its module does not.

    >>> type(unwrapped(nn.DataParallel(nn.Identity()))).__name__
    'Identity'
    """
    while True:
        if isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel):
            model = model.module
        elif type(model).__name__ == "OptimizedModule":
            model = model._orig_mod
        elif type(model).__name__ == "_FabricModule":  # Lightning Fabric's: autocast, and what its strategy wraps
            model = model.module
        else:
            return model


@contextmanager
def own_forward(model: nn.Module) -> Iterator[None]:
    """Inside, `model` runs by its own forward, without the autocast that accelerate puts around a prepared model's.

    That one is an attribute of the instance, so it wins over an autocast that is turned off outside.
    """
    prepared = [part for part in model.modules() if {"forward", "_original_forward"} <= vars(part).keys()]
    wrapped = [part.forward for part in prepared]
    try:
        for part in prepared:
            part.forward = vars(part)["_original_forward"]
        yield
    finally:
        for part, forward in zip(prepared, wrapped, strict=True):
            part.forward = forward


def compiled_part(model: nn.Module) -> tuple[str, nn.Module] | None:
    """The first part that is compiled, wrapped or in place, and its path."""
    for path, module in model.named_modules():
        if (
            type(module).__name__ == "OptimizedModule"
            or getattr(module, "_compiled_call_impl", None) is not None
            or hasattr(vars(module).get("forward"), "_torchdynamo_orig_callable")
        ):
            return path, module
    return None


def refuse_compiled(model: nn.Module) -> None:
    """CompiledModelError if any part of the model is compiled: what is added to it later would not be in that code."""
    if (found := compiled_part(model)) is not None:
        path, module = found
        raise CompiledModelError(
            f"expected a plain module, but {path or 'the model'!r} ({type(module).__name__}) is compiled with "
            "torch.compile, and its code knows only the parameters of that time. Change the model from before "
            "compiling (compiled._orig_mod), and compile it afterwards"
        )


def uncompiled(fn: Callable[P, R]) -> Callable[P, R]:
    """The function, which code that calls it does not take in when it is compiled: it is a break between two graphs."""
    return torch.compiler.disable(fn) if "torch._dynamo.eval_frame" in sys.modules else fn


class _Eager:
    """torch's switch is global: it is eager while anybody listens, and as it was before once the last one has left.

    Whoever came first may leave first; torch's own contexts, left in that order, would stay eager for good.
    """

    lock = threading.Lock()
    listeners = 0
    before: Any = None  # what puts torch back


@contextmanager
def eagerly() -> Iterator[None]:
    """Inside, compiled modules run as they were written, and their hooks fire."""
    with _Eager.lock:
        # where nothing was ever compiled there is nothing to switch, and importing the compiler takes seconds
        if _Eager.before is None and "torch._dynamo.eval_frame" in sys.modules:
            _Eager.before = torch.compiler.set_stance("force_eager")
        _Eager.listeners += 1
    try:
        yield
    finally:
        with _Eager.lock:
            _Eager.listeners -= 1
            if _Eager.listeners == 0 and _Eager.before is not None:
                _Eager.before.__exit__(None, None, None)
                _Eager.before = None
