"""One model on the page: what is known about it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from unsmooth.analysis.attributing.attribution import Attribution
from unsmooth.analysis.explaining.agreement import Agreement
from unsmooth.analysis.explaining.explanation import Explanation
from unsmooth.analysis.measuring.measurement import Measurement
from unsmooth.analysis.sweep import Sweep
from unsmooth.analysis.token_view import TokenView

MEASURED = "measured_ratio"
NOT_EXPLAINED = "not explained: "  # begins the note on a model whose weights or matrices cannot be used
# The page's names for the columns of an explanation that predict the measured one.
PREDICTORS = {
    "exponent": "exponent", "with_constant": "exponent_constant", "small_step": "small_step",
    "frozen": "frozen_ratio", "without_constant": "without_constant",
}  # fmt: skip


@dataclass(frozen=True)
class Subject:
    """A model by the name the page shows; without an explanation or token view, those sections leave it out."""

    name: str
    measurement: Measurement
    explanation: Explanation | None = None
    tokens: TokenView | None = None
    attribution: Attribution | None = None
    sweep: Sweep | None = None

    def is_of(self, sweep: Sweep) -> bool:
        """Whether a sweep edited this model: the same weights, or the same reference."""
        ours, theirs = self.measurement.about.model, sweep.about.model
        return any(
            a is not None and a == b for a, b in ((ours.weights, theirs.weights), (ours.reference, theirs.reference))
        )

    @cached_property
    def agreements(self) -> dict[str, Agreement]:
        """Every prediction against the measured change of log HFC/LFC; its bootstrap is done once."""
        if self.explanation is None:
            return {}
        have = self.explanation.frame().columns
        return {
            ours: self.explanation.agreement(theirs, MEASURED) for ours, theirs in PREDICTORS.items() if theirs in have
        }
