"""`bake`: plain weights again, in a standard model, with the same outputs."""

from __future__ import annotations

import copy as copying
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn.utils import parametrize

from unsmooth.control.adapter import ATTRIBUTE as ADAPTER
from unsmooth.control.adapter import adapters_of, load_before_adapter
from unsmooth.control.computed_once import ComputedOnce
from unsmooth.control.norm_scale import NormScale
from unsmooth.control.reparametrization import control_of, controls_of, load_before
from unsmooth.control.slots import Added, Supplied, driven
from unsmooth.control.spectral import ATTRIBUTE
from unsmooth.models.storage import GATHER, refuse_sharded
from unsmooth.models.wrappers import unwrapped

M = TypeVar("M", bound=nn.Module)


@torch.no_grad()
def bake(model: M, *, copy: bool = False) -> M:
    """Write controlled or adapted weights into plain parameters, in place or in a `copy`; returns the plain model.

    Every class is the library's own again, so the model saves and loads like one that was never controlled; weights
    that were frozen are frozen again. A singular Θ is an error with the layer's name.
    """
    plain = unwrapped(model)
    control: ComputedOnce = adapters_of(plain)[0][1] if adapters_of(plain) else control_of(plain)
    refuse_sharded(plain, f"baking needs whole weights; {GATHER} (reparametrised alike), and bake that one")
    control.check()
    control.clear(plain, (), None)  # of a pass that ended early: changes of `parameter.data` leave no trace in versions
    if copy:
        plain = copying.deepcopy(plain)
    for _, module, name, part in [*driven(plain, Supplied), *driven(plain, Added)]:
        original = module.parametrizations[name].original  # type: ignore[index, union-attr]
        trained = part.trained if isinstance(part, Supplied) else original.requires_grad
        weight = nn.Parameter(getattr(module, name).detach().clone().contiguous(), trained)
        _have_own_class(module)
        parametrize.remove_parametrizations(module, name, leave_parametrized=False)
        _restore(module, name, weight)
    every: list[tuple[nn.Module, ComputedOnce]] = [*controls_of(plain), *adapters_of(plain)]
    for owner, control in every:
        delattr(owner, ATTRIBUTE if hasattr(owner, ATTRIBUTE) else ADAPTER)
        for module in plain.modules():
            _forget(module, control)
    return plain


def _have_own_class(module: nn.Module) -> None:
    """Copies of a parametrised module share its class, and PyTorch takes the weight's property off that class: without
    this, baking a copy would leave the original (or an averaged model) without weights."""
    shared = type(module)
    own = {name: value for name, value in vars(shared).items() if name not in ("__dict__", "__weakref__")}
    module.__class__ = type(shared.__name__, shared.__bases__, own)


def _restore(module: nn.Module, name: str, weight: nn.Parameter) -> None:
    """Put `weight` at the place it had: the first, as in every layer that PyTorch or HF defines."""
    delattr(module, name)
    others = dict(module._parameters)
    module._parameters.clear()
    module.register_parameter(name, weight)
    module._parameters.update(others)


def _forget(module: nn.Module, control: ComputedOnce) -> None:
    """Take the control's hooks away."""
    dictionaries: tuple[Any, ...] = (
        module._forward_pre_hooks,
        module._forward_hooks,
        module._load_state_dict_pre_hooks,
    )
    for hooks in dictionaries:
        for key, hook in list(hooks.items()):
            owner = getattr(hook, "__self__", None)
            ours = owner is control or (isinstance(owner, NormScale) and owner.control is control)
            if ours or getattr(hook, "hook", None) in (load_before, load_before_adapter):
                del hooks[key]
                module._forward_hooks_always_called.pop(key, None)
