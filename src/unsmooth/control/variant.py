"""Variants of a model by one name: plain, a form of control with its sign, or a published fix.

plain                            the model as it is
sharpening, smoothing            the poster's symmetric form
sharpening-eigen, …-split        the other forms
sharpening-bounded, …-bounded2   eigenvalues above −1/s and −2/s, s the scale of the norm before attention
sharpening@first-half            in some layers only (any pattern that `control` takes), the others plain
sharpening@:6+smoothing@6:       one mode in some layers, the other in others
attnscale, contranorm, …         a published fix
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import nn

from unsmooth.control.baking import bake
from unsmooth.control.bounds import SIGNS
from unsmooth.control.fixes import FIXES, apply_fix
from unsmooth.control.layers import attention_layers
from unsmooth.control.modes import PLAIN
from unsmooth.control.reparametrization import reparametrize
from unsmooth.errors import OptionError
from unsmooth.models.select import select_layers

# ψ's standard deviation: appendix A says 0.1; the poster's form squares ψ, and 0.3² is about that.
STANDARD_DEVIATION = {"symmetric": 0.3, "split": 0.1, "eigen": 0.1}
REACH = {"bounded": 1.0, "bounded2": 2.0}  # in units of 1/s; the symmetric form


@dataclass(frozen=True)
class Variant:
    """What is done to the plain model before training."""

    mode: str | None = None
    form: str = "symmetric"
    layers: str = "all"
    fix: str | None = None
    other: Variant | None = None  # the other mode, in other layers
    reach: float | None = None  # of the eigenvalues, in units of 1 / the scale of the norm before attention
    name: str = field(default=PLAIN, compare=False, repr=False)

    @classmethod
    def parse(cls, text: str) -> Variant:
        """The variant of this name.

        >>> Variant.parse("smoothing-split@0:6")
        Variant(mode='smoothing', form='split', layers='0:6', fix=None, other=None, reach=None)
        """
        head, plus, tail = text.partition("+")
        if plus:
            return cls._mixed(text, cls.parse(head), cls.parse(tail))
        name, at, layers = text.partition("@")
        mode, dash, form = name.partition("-")
        if mode in SIGNS and (not dash or form in STANDARD_DEVIATION):
            return cls(mode, form or "symmetric", layers if at else "all", name=text)
        if mode == "sharpening" and form in REACH:
            return cls(mode, layers=layers if at else "all", reach=REACH[form], name=text)
        if name in FIXES:
            return cls(fix=name, layers=layers if at else "all", name=text)
        if text == PLAIN:
            return cls()
        forms = [f"{m}-{f}" for f in STANDARD_DEVIATION for m in SIGNS]
        forms += [f"sharpening-{form}" for form in REACH]
        raise OptionError.unknown("variant", text, [PLAIN, *SIGNS, *forms, *FIXES])

    @classmethod
    def _mixed(cls, text: str, first: Variant, second: Variant) -> Variant:
        alike = (first.form, first.reach) == (second.form, second.reach)
        if {first.mode, second.mode} != set(SIGNS) or not alike or second.other is not None:
            raise OptionError(
                f"variant {text!r}: expected both modes in one form, as in sharpening@first-half+smoothing@second-half"
            )
        return cls(first.mode, first.form, first.layers, other=second, name=text)

    def modes(self, model: nn.Module) -> dict[int, str]:
        """The mode of every layer that has one."""
        found: dict[int, str] = {}
        names = list(attention_layers(model))
        for part in (self, self.other):
            if part is not None and part.mode is not None:
                chosen = select_layers(part.layers, names)
                if twice := sorted(set(found) & set(chosen)):
                    raise OptionError(f"a variant gives the layers {twice} both modes: choose layers that do not meet")
                found |= dict.fromkeys(chosen, part.mode)
        return found

    def apply(self, model: nn.Module, std: float | None = None, seed: int = 0) -> nn.Module:
        """Change the model in place; the same seed gives the same Θ and ψ, `std` is that of ψ."""
        if self.fix is not None:
            apply_fix(model, self.fix, layers=self.layers)
        if self.mode is not None:
            std = STANDARD_DEVIATION[self.form] if std is None else std
            rng = torch.Generator().manual_seed(seed + 1)
            reparametrize(model, self.modes(model), form=self.form, std=std, reach=self.reach, generator=rng)
        return model

    def bake(self, model: nn.Module) -> nn.Module:
        """Plain weights again where the variant reparametrised them; any other model as it is."""
        return model if self.mode is None else bake(model)
