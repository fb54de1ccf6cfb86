"""GFSA (Choi et al. 2024): attention as a graph filter, a polynomial in A."""

from __future__ import annotations

import torch
from torch import nn

from unsmooth.control.fixes.base import AttentionFix, Fix, LayerShape, Maps, each
from unsmooth.errors import OptionError, WeightsError


class GFSA(AttentionFix):
    """A' = w₀ I + w₁ A + w_K (A + (K−1)(A² − A)), the last a first-order estimate of A^K; starts at A' = A."""

    def __init__(self, shape: LayerShape, order: int = 3) -> None:
        super().__init__()
        if order < 2:
            raise OptionError(f"gfsa order {order}: expected K ≥ 2, the power of A that is estimated")
        self.order = order
        self.w0 = nn.Parameter(torch.zeros(shape.heads, 1, 1))
        self.w1 = nn.Parameter(torch.ones(shape.heads, 1, 1))
        self.wk = nn.Parameter(torch.zeros(shape.heads, 1, 1))

    def matrix(self, a: Maps, uniform: Maps) -> Maps:
        """The filtered matrix."""
        if a.shape[-2] != a.shape[-1]:
            raise WeightsError(
                f"gfsa takes powers of A, but here A is {a.shape[-2]}×{a.shape[-1]}: expected attention over one "
                "whole sequence (use_cache=False)"
            )
        power = a + (self.order - 1) * (a @ a - a)
        eye = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
        return self.w0 * eye + self.w1 * a + self.wk * power


FIX = Fix("gfsa", "Choi et al. 2024", "attention", each(GFSA))
