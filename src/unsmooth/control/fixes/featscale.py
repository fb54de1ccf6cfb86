"""FeatScale (Wang et al. 2022): re-weight the frequency bands of the attention's output.

As in the paper and the authors' code for CaiT and Swin (VITA-Group/ViT-Anti-Oversmoothing): after the
projection, before LayerScale, in every layer; s and t do not decay. Their featscale.py for DeiT adds the two
re-weighted bands twice, so its s and t are half of ours.
"""

from __future__ import annotations

import torch
from torch import nn

from unsmooth.control.fixes.base import Features, Fix, LayerShape, each


class FeatScale(nn.Module):
    """X' = X + LFC[X] diag(s) + HFC[X] diag(t), s and t learned per feature from 0."""

    def __init__(self, shape: LayerShape) -> None:
        super().__init__()
        self.s = nn.Parameter(torch.zeros(shape.dim))
        self.t = nn.Parameter(torch.zeros(shape.dim))

    def forward(self, x: Features) -> Features:
        """The attention's output, re-weighted."""
        low = x.mean(-2, keepdim=True)
        return x + low * self.s + (x - low) * self.t


FIX = Fix("featscale", "Wang et al. 2022", "output", each(FeatScale))
