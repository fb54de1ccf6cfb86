"""Variants of a run, named on the command line: plain, a form of `control` with its sign, or a peer fix.

plain                            the recipe's model
sharpening, smoothing            the poster's symmetric form
sharpening-eigen, …-split        the other forms
sharpening@first-half            in some layers only (any pattern that `control` takes), the others plain
attnscale, contranorm, …         a published fix
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from unsmooth.control import PEERS, apply_fix, bake, reparametrize
from unsmooth.errors import OptionError

PLAIN = "plain"
MODES = ("sharpening", "smoothing")
# ψ's standard deviation: appendix A says 0.1; the poster's form squares ψ, and 0.3² is about that.
STANDARD_DEVIATION = {"symmetric": 0.3, "split": 0.1, "eigen": 0.1}


@dataclass(frozen=True)
class Variant:
    """What is done to the plain model before training."""

    mode: str | None = None
    form: str = "symmetric"
    layers: str = "all"
    fix: str | None = None

    @classmethod
    def parse(cls, text: str) -> Variant:
        """The variant of this name.

        >>> Variant.parse("smoothing-split@0:6")
        Variant(mode='smoothing', form='split', layers='0:6', fix=None)
        """
        name, at, layers = text.partition("@")
        mode, dash, form = name.partition("-")
        if mode in MODES and (not dash or form in STANDARD_DEVIATION):
            return cls(mode, form or "symmetric", layers if at else "all")
        if name in PEERS:
            return cls(fix=name, layers=layers if at else "all")
        if text == PLAIN:
            return cls()
        forms = [f"{m}-{f}" for f in STANDARD_DEVIATION for m in MODES]
        raise OptionError.unknown("variant", text, [PLAIN, *MODES, *forms, *PEERS])


def apply_variant(model: nn.Module, variant: str, std: float | None = None, seed: int = 0) -> nn.Module:
    """Change the model in place; the same seed gives the same Θ and ψ."""
    what = Variant.parse(variant)
    if what.fix is not None:
        apply_fix(model, what.fix, layers=what.layers)
    if what.mode is not None:
        std = STANDARD_DEVIATION[what.form] if std is None else std
        rng = torch.Generator().manual_seed(seed + 1)
        reparametrize(model, what.mode, form=what.form, layers=what.layers, std=std, generator=rng)
    return model


def baked(model: nn.Module, variant: str) -> nn.Module:
    """Plain weights again where the variant reparametrised them; any other model as it is."""
    return model if Variant.parse(variant).mode is None else bake(model)
