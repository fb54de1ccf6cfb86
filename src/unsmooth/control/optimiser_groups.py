"""Optimiser groups that keep weight decay off ψ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

from unsmooth.control.computed_once import ComputedOnce
from unsmooth.models.view import module_of


def parameter_groups(model: nn.Module, weight_decay: float, *, decay_vectors: bool = False) -> list[dict[str, Any]]:
    """Two groups for an optimiser: with weight decay, and without.

    ψ, which sets the eigenvalues, never decays, because decay would pull every eigenvalue to 0. Θ, the eigenvectors'
    free parameter, decays as the weights that it replaces did. Biases, norm weights and what the model lists in
    `no_weight_decay()` do not, unless `decay_vectors`. Works for plain models too.
    """
    eigenvalues = {id(module.psi) for module in module_of(model).modules() if isinstance(module, ComputedOnce)}
    names = set() if decay_vectors else set(_exempt(model))
    decay: list[nn.Parameter] = []
    rest: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        vector = parameter.ndim < 2 and not decay_vectors
        exempt = id(parameter) in eigenvalues or vector or name in names
        (rest if exempt else decay).append(parameter)
    return [{"params": decay, "weight_decay": weight_decay}, {"params": rest, "weight_decay": 0.0}]


def _exempt(model: nn.Module) -> Iterator[str]:
    """What any part lists in `no_weight_decay()`, by its name in the model (compiled and wrapped ones too)."""
    for path, module in model.named_modules():
        listed = getattr(module, "no_weight_decay", None)
        if callable(listed):
            yield from (f"{path}.{name}" if path else name for name in listed())
