"""What every module of a model was given and gave in one forward pass."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from unsmooth.models.forward import call, evaluating, to_model
from unsmooth.models.hooks import FastPath
from unsmooth.models.sdpa import attention_matrix
from unsmooth.models.taps import Tap, tensors_in


@dataclass(frozen=True, eq=False)
class Call:
    """One call of a module; tensors as they were then. `call` of `of` counts from 1."""

    path: str
    module: nn.Module
    given: Tensor | None
    gave: tuple[Tensor | None, ...]
    matrices: tuple[Tensor, ...]  # of the calls of F.scaled_dot_product_attention inside
    inside: tuple[Call, ...] = ()  # with paths below this module
    call: int = 1
    of: int = 1

    def tap(self, side: Any, item: int = 0) -> Tap:
        """Where this tensor is taken, from a module that stands at `path` below the root."""
        return Tap(self.path, side, self.call, self.of, item)


class _Matrices(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.formed: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Called by PyTorch for every function of its own."""
        if func is F.scaled_dot_product_attention:
            self.formed.append(attention_matrix(*args, **(kwargs or {})))
        return func(*args, **(kwargs or {}))


def trace(model: nn.Module, batch: Any) -> list[Call]:
    """Every call of a module, in the order in which the calls end. The model runs once, in eval mode."""
    calls: list[Call] = []
    began: dict[int, list[tuple[Tensor | None, int]]] = {}

    def enter(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = next(tensors_in(args, kwargs), None)
        began.setdefault(id(module), []).append((_copy(given), len(sdpa.formed)))

    def leave(module: nn.Module, args: Any, output: Any) -> None:
        given, before = began[id(module)].pop()
        items = output if isinstance(output, tuple | list) else (output,)
        gave = tuple(_copy(item) if isinstance(item, Tensor) else None for item in items)
        calls.append(Call(paths[id(module)], module, given, gave or (None,), tuple(sdpa.formed[before:])))

    paths = {id(module): path for path, module in model.named_modules()}
    with ExitStack() as stack:
        stack.enter_context(evaluating(model))
        stack.enter_context(FastPath.off())
        sdpa = stack.enter_context(_Matrices())
        for module in model.modules():
            stack.callback(module.register_forward_pre_hook(enter, with_kwargs=True).remove)
            stack.callback(module.register_forward_hook(leave).remove)
        call(model, to_model(batch, model))
    return calls


def _copy(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.detach().clone()


def within(calls: list[Call], root: str = "") -> list[Call]:
    """The calls below a module that was called once, with paths below it and calls counted inside it."""
    start = f"{root}." if root else ""
    inside = [c for c in calls if c.path.startswith(start) and c.path]
    total, so_far = Counter(c.path for c in inside), Counter[str]()
    found = []
    for c in inside:
        so_far[c.path] += 1
        found.append(replace(c, path=c.path[len(start) :], call=so_far[c.path], of=total[c.path]))
    return found


def same(a: Tensor | None, b: Tensor | None) -> bool:
    """Whether two tensors agree up to rounding."""
    if a is None or b is None or a.shape != b.shape or not a.is_floating_point() or not b.is_floating_point():
        return False
    eps = max(torch.finfo(x.dtype).eps for x in (a, b))
    a, b = a.double(), b.double()
    return bool((a - b).abs().amax() <= 20 * eps * b.abs().amax())
