"""ContraNorm (Guo et al. 2023): push tokens apart before every normalisation of the blocks.

The formula and the temperature are those of the authors' ViT (PKU-ML/ContraNorm, ViT_imagenet/models.py).
The scale 0.1 is one of those they try for BERT (0.0001 to 0.2); the examples in their ViT script have 0.01. In the ViT
they also change the norm after the last block, and in BERT only the one after attention, where we change every norm
inside the blocks. Their BERT computes (1 + s) x − s softmax(…) x; with the LayerNorm that follows, and but for its ε,
this is ours with the scale s / (1 + s).
"""

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
