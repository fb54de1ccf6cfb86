"""Variants of a run: the plain model, or one of the forms of `control` with its sign."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from unsmooth.errors import OptionError
from unsmooth.train.recipes import Recipe

MODES = ("sharpening", "smoothing")
FORMS = ("symmetric", "split", "eigen")
# ψ's standard deviation: appendix A says 0.1; the poster's form squares ψ, and 0.3² is its 0.1.
STANDARD_DEVIATION = {"symmetric": 0.3, "split": 0.1, "eigen": 0.1}
VARIANTS = ("plain", *(f"{mode}-{form}" for form in FORMS for mode in MODES), *MODES)


def apply_variant(model: nn.Module, variant: str, std: float | None = None, seed: int = 0) -> nn.Module:
    """Reparametrise in place; `sharpening` alone means the poster's symmetric form."""
    if variant not in VARIANTS:
        raise OptionError.unknown("variant", variant, VARIANTS)
    if variant == "plain":
        return model
    from unsmooth.control import reparametrize

    mode, _, form = variant.partition("-")
    form = form or "symmetric"
    state = torch.get_rng_state()
    torch.manual_seed(seed + 1)
    try:
        reparametrize(model, mode, form=form, std=STANDARD_DEVIATION[form] if std is None else std)
    finally:
        torch.set_rng_state(state)
    return model


def baked(model: nn.Module, variant: str) -> nn.Module:
    """Plain weights again; a plain model is returned as it is."""
    if variant == "plain":
        return model
    from unsmooth.control import bake

    bake(model)
    return model


def parameter_groups(model: nn.Module, variant: str, recipe: Recipe) -> list[dict[str, Any]]:
    """Weight decay on matrices only: not on biases, norms, ψ, the class token and positions."""
    exempt = set(getattr(model, "no_weight_decay", set)())
    decay, free = [], []
    for name, parameter in model.named_parameters():
        bare = parameter.ndim <= 1 or name in exempt or name.endswith(".psi")
        (free if bare else decay).append(parameter)
    return [{"params": decay, "weight_decay": recipe.weight_decay}, {"params": free, "weight_decay": 0.0}]
