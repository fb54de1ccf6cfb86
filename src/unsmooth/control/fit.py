"""Start from existing weights: the nearest admissible spectrum, and how far it is from what was there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fit:
    """Relative Frobenius errors of one layer's fit: per head (what the outputs depend on) and of Σ_h W_h."""

    layer: str
    heads: float
    total: float
