"""Layers whose step is too long: a negative eigenvalue shrinks the mean token only while sλ ≥ −2."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unsmooth.analysis.explanation import Explanation

LIMIT = -2.0  # |1 + sλ| > 1 below it: what Corollary 3 calls sharpening for λ in [−1, 0) and s = 1 turns around


def overshooting(explanation: Explanation) -> dict[int, float]:
    """Layers whose fastest growing mean direction has s·Re λ < −2, and that value.

    Repeated, such a layer turns the mean token's sign and makes it grow each time, so γ says smoothing in the limit;
    one pass over features that do not lie along that direction sharpens all the same.
    """
    steps = explanation.frame().groupby("layer")["step"].mean()
    folded = max(row["folded"] for row in explanation.spectra)
    found = {}
    for row in explanation.spectra:
        if row["folded"] != folded:
            continue
        moved = float(steps[row["layer"]]) * row["layer_values"]
        fastest = float(moved[(1 + moved).abs().argmax()].real)
        if fastest < LIMIT:
            found[int(row["layer"])] = fastest
    return found
