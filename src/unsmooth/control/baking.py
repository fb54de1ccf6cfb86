"""`bake`: plain weights again, in a standard model, with the same outputs."""

from __future__ import annotations

import copy as copying
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from unsmooth.control.apply import clear_after, control_of, fill_before, load_before, unwrap
from unsmooth.control.slots import supplied
from unsmooth.control.spectral import ATTRIBUTE

M = TypeVar("M", bound=nn.Module)


@torch.no_grad()
def bake(model: M, *, copy: bool = False) -> M:
    """Write the controlled weights into plain parameters, in place or in a `copy`; returns the plain model.

    Every class is the library's own again, so the model saves and loads like one that was never controlled.
    A singular Θ is an error with the layer's name.
    """
    plain = unwrap(model)
    control_of(plain).check()
    if copy:
        plain = copying.deepcopy(plain)
    for _, module, name, _ in list(supplied(plain)):
        weight = getattr(module, name).detach().clone().contiguous()
        parametrize.remove_parametrizations(module, name, leave_parametrized=False)
        _restore(module, name, weight)
    delattr(plain, ATTRIBUTE)
    for hooks in (plain._forward_pre_hooks, plain._forward_hooks, plain._load_state_dict_pre_hooks):
        _forget(hooks, plain)
    return plain  # type: ignore[return-value]


def _restore(module: nn.Module, name: str, weight: Tensor) -> None:
    """Make `weight` a parameter at the place it had: the first, as in every layer that PyTorch or HF defines."""
    delattr(module, name)
    others = dict(module._parameters)
    module._parameters.clear()
    module.register_parameter(name, nn.Parameter(weight))
    module._parameters.update(others)


def _forget(hooks: Any, model: nn.Module) -> None:
    for key, hook in list(hooks.items()):
        if getattr(hook, "hook", hook) in (fill_before, clear_after, load_before):
            del hooks[key]
            model._forward_hooks_always_called.pop(key, None)
