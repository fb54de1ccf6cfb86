"""How many samples have their spectra found when that takes longer than the forward pass: every 2ᵏ-th, from the first.

Whatever the machine, the samples that one run takes are among those of a run that could afford more, so that two runs
can be compared sample by sample; and sorted data are not judged by their beginning.
"""

from __future__ import annotations

import math

from unsmooth.errors import OptionError

EXACT = "exact"
# Rows of a Gram matrix up to which its spectrum is always found unless a budget was asked for: those of a ViT's 197 to
# 261 tokens, which take a millisecond a sample on a GPU. Spectra of 512 rows at all points take eight forward passes.
CHEAP = 288
USUAL = 2.0  # measuring takes at most twice as long as the forward passes alone


class RankBudget:
    """Chooses samples, and learns from each batch what a forward pass and the spectra of one sample cost."""

    def __init__(self, budget: float | str | None = None) -> None:
        given = budget
        if isinstance(budget, str):
            try:
                budget = math.inf if budget == EXACT else float(budget)
            except ValueError:
                budget = math.nan
        if budget is not None and not budget > 1:
            raise OptionError(
                f"expected a rank budget above 1 (2: spectra may take as long as the forward passes) or {EXACT!r}, "
                f"got {given!r}"
            )
        self._asked = budget is not None
        self._spare = (USUAL if budget is None else budget) - 1
        self._forward, self._spectra = math.inf, math.inf  # seconds of one sample, at best
        self._seen = 0
        self._cut = 0  # rows of the largest Gram matrix of which not everybody's spectrum was found

    @property
    def period(self) -> float:
        """One of so many samples is taken; infinite before anything is known."""
        if math.isinf(self._forward):
            return math.inf
        allowed = self._spare * self._forward
        return 2.0 ** max(0, math.ceil(math.log2(self._spectra / allowed))) if self._spectra > 0 else 1.0

    def choose(self, side: int, batch: int) -> list[int] | None:
        """Of a batch of this size, the samples whose spectra, of matrices with so many rows, are found; None: all."""
        if math.isinf(self._spare) or (side <= CHEAP and not self._asked):
            return None
        taken = [i for i in range(batch) if self._taken(self._seen + i)]
        if len(taken) < batch:
            self._cut = max(self._cut, side)
        return taken

    def learn(self, samples: int, seconds: float, spectra: float, taken: int) -> None:
        """A batch took so many seconds, of which `spectra` went into the spectra of the samples taken."""
        self._seen += samples
        self.guess(samples, seconds, spectra, taken)

    def guess(self, samples: int, seconds: float, spectra: float, taken: int) -> None:
        """The same before a sample was measured."""
        self._forward = min(self._forward, max(seconds - spectra, 1e-9) / max(1, samples))
        if taken:
            self._spectra = min(self._spectra, spectra / taken)

    def expects(self, side: int) -> bool:
        """Whether it will have to choose among samples with such matrices, and does not know yet what they cost."""
        return math.isinf(self._forward) and math.isfinite(self._spare) and (side > CHEAP or self._asked)

    def note(self, names: str, count: int) -> str | None:
        """What must be said of the metrics that need spectra; None where every sample was taken."""
        if not self._cut:
            return None
        cost = f"{self._spectra / self._forward:.2g} times its forward pass"
        if self.period == 1:
            why = f"the others came before it was known that one sample's spectra take only {cost}"
        else:
            why = f"one sample's spectra (matrices of up to {self._cut} rows) take {cost}"
        return f"{names}: of {count} of {self._seen} samples, because {why}; rank_budget='exact' takes all samples"

    def _taken(self, index: int) -> bool:
        return index == 0 or (math.isfinite(self.period) and index % int(self.period) == 0)
