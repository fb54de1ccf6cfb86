"""GFSA (Choi et al. 2024): attention as a graph filter, a polynomial in A.

As in the authors' code (jeongwhanchoi/GFSA, Image/): after the softmax, only w_K is learned, one per head,
and w₁ = 1. w₀ is 0 there, and a number near 0 that is not learned in their language models (NLP/). They take K = 3
for Swin and speech, which is our default, 4 for DeiT and CaiT, and 2 to 10 for text.
"""

from __future__ import annotations

import torch
from torch import nn

from unsmooth.control.fixes.base import AttentionFix, Fix, LayerShape, Maps, each
from unsmooth.errors import OptionError, WeightsError


class GFSA(AttentionFix):
    """A' = w₀ I + w₁ A + w_K (A + (K−1)(A² − A)), the last a first-order estimate of A^K; starts at w₀ I + A."""

    w0: torch.Tensor
    w1: torch.Tensor

    def __init__(self, shape: LayerShape, order: int = 3, identity: float = 0.0) -> None:
        super().__init__()
        if order < 2:
            raise OptionError(f"gfsa order {order}: expected K ≥ 2, the power of A that is estimated")
        self.order = order
        self.register_buffer("w0", torch.full((shape.heads,), float(identity)))
        self.register_buffer("w1", torch.ones(shape.heads))
        self.wk = nn.Parameter(torch.zeros(shape.heads))

    def matrix(self, a: Maps, uniform: Maps) -> Maps:
        """The filtered matrix."""
        if a.shape[-2] != a.shape[-1]:
            raise WeightsError(
                f"gfsa takes powers of A, but here A is {a.shape[-2]}×{a.shape[-1]}: expected attention over one "
                "whole sequence (use_cache=False)"
            )
        power = a + (self.order - 1) * (a @ a - a)
        eye = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
        w0, w1, wk = (w[:, None, None] for w in (self.w0, self.w1, self.wk))
        return w0 * eye + w1 * a + wk * power


FIX = Fix("gfsa", "Choi et al. 2024", "attention", each(GFSA))
