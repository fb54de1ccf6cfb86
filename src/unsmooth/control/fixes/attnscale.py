"""AttnScale (Wang et al. 2022): amplify the high-pass part of each head's attention matrix.

As in the authors' code (VITA-Group/ViT-Anti-Oversmoothing, attnscale.py): after the softmax and before
dropout, in every layer, ω a vector over heads, which does not decay. With a mask our average is over the
tokens that a query sees; theirs (Swin) is over the whole window.
"""

from __future__ import annotations

import torch
from torch import nn

from unsmooth.control.fixes.base import AttentionFix, Fix, LayerShape, Maps, each


class AttnScale(AttentionFix):
    """A' = 11ᵀ/n + (1 + ω_h)(A − 11ᵀ/n), ω learned per head from 0."""

    def __init__(self, shape: LayerShape) -> None:
        super().__init__()
        self.omega = nn.Parameter(torch.zeros(shape.heads))

    def matrix(self, a: Maps, uniform: Maps) -> Maps:
        """The low-pass part as it is, the high-pass part 1 + ω_h times."""
        return uniform + (1 + self.omega[:, None, None]) * (a - uniform)


FIX = Fix("attnscale", "Wang et al. 2022", "attention", each(AttnScale))
