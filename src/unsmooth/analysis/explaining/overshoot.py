"""Layers whose step is too long for their negative eigenvalues.

Corollary 3 promises sharpening, for every attention matrix, where all sλ lie in [−1, 0). Below −1 the promise is gone
and A decides: with A = 0.9·I + 0.1·11ᵀ/n and sλ = −1.9, −1.85, −1.8 a repeated layer smooths. Below −2 the mean token
itself grows, with a sign that turns at every layer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from unsmooth.analysis.explaining.explanation import Explanation

PROMISED = -1.0  # Corollary 3 with step s: sλ in [−1, 0)
GROWS = -2.0  # |1 + sλ| > 1 below it


def overshooting(explanation: Explanation) -> dict[int, float]:
    """Layers whose fastest growing mean direction has s·Re λ < −2, and that value.

    Repeated, such a layer turns the mean token's sign and makes it grow each time, so γ says smoothing in the limit;
    one pass over features that do not lie along that direction may sharpen all the same.
    """
    fastest = {layer: float(moved[(1 + moved).abs().argmax()].real) for layer, moved in _moved(explanation)}
    return {layer: value for layer, value in fastest.items() if value < GROWS}


def unpromised(explanation: Explanation) -> dict[int, float]:
    """Layers whose lowest s·Re λ is below −1, and that value: Corollary 3 promises no sharpening there."""
    lowest = {layer: float(moved.real.min()) for layer, moved in _moved(explanation)}
    return {layer: value for layer, value in lowest.items() if value < PROMISED}


def _moved(explanation: Explanation) -> Iterator[tuple[int, Tensor]]:
    """sλ of every layer; none of a post-norm model, whose norm multiplies the whole state and not H alone."""
    if explanation.about.model.placement == "post":
        return
    steps = explanation.frame().groupby("layer")["step"].mean()
    folded = max((row["folded"] for row in explanation.spectra), default=False)
    for row in explanation.spectra:
        if row["folded"] == folded and len(row["layer_values"]):
            yield int(row["layer"]), float(steps[row["layer"]]) * row["layer_values"]
