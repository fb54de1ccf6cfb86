"""Centred attention (Ali et al. 2023): take the mean over tokens out of the attention matrix.

We found no code of the authors to compare with. In every head the rows of the matrix then sum to 0; with a mask we
subtract the average over the tokens that a query sees.
"""

from __future__ import annotations

from unsmooth.control.fixes.base import AttentionFix, Fix, LayerShape, Maps, each


class Centered(AttentionFix):
    """A' = A − 11ᵀ/n: rows sum to 0, so the type (1) direction of the residual-free update is gone."""

    def __init__(self, shape: LayerShape) -> None:
        super().__init__()

    def matrix(self, a: Maps, uniform: Maps) -> Maps:
        """A without its mean."""
        return a - uniform


FIX = Fix("centered", "Ali et al. 2023", "attention", each(Centered))
