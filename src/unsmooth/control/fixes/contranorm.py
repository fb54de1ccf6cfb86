"""ContraNorm (Guo et al. 2023): push tokens apart before every normalisation."""

from __future__ import annotations

from torch import nn
from torch.nn.functional import normalize

from unsmooth.control.fixes.base import Features, Fix, LayerShape, each
from unsmooth.errors import OptionError


class ContraNorm(nn.Module):
    """x − scale · softmax(x̂ x̂ᵀ/τ) x with unit rows x̂; the block's own LayerNorm follows, as the paper's does."""

    def __init__(self, shape: LayerShape, scale: float = 0.1, temperature: float = 1.0) -> None:
        super().__init__()
        if not temperature > 0:
            raise OptionError(f"contranorm temperature {temperature}: expected a positive number")
        self.scale, self.temperature = scale, temperature

    def forward(self, x: Features) -> Features:
        """What the normalisation gets."""
        unit = normalize(x, dim=-1)
        return x - self.scale * ((unit @ unit.mT) / self.temperature).softmax(-1) @ x


FIX = Fix("contranorm", "Guo et al. 2023", "norm", each(ContraNorm))
