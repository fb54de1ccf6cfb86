"""What a LayerNorm does to oversmoothing: HFC/LFC after many simulated iterations, and whether γ had its sign.

Each cell stands beside what docs/theory.md, section 5, documents of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product
from statistics import mean, median, stdev

from torch import Tensor

from unsmooth.theory.scenario import MODES, SIGNS, Form, Mode, Scenario, draw, scenarios

COLUMNS = tuple(product(MODES, SIGNS))  # signs are those of the LayerNorm weights
# log10 HFC/LFC after 128 iterations, from docs/theory.md, in the order of COLUMNS: means of 5 seeds, those of the
# general form under a norm of 20. Negating H and γ together changes nothing under Pre-LN, so its columns mirror.
_DOCUMENTED: dict[tuple[Form, str | None], tuple[float, ...]] = {
    ("symmetric", None): (1.9, math.nan, -15.6, math.nan),
    ("symmetric", "pre"): (1.4, -1.7, -1.7, 1.4),
    ("symmetric", "post"): (1.8, 1.8, -15.7, -15.7),
    ("general", None): (1.9, math.nan, -14.5, math.nan),
    ("general", "pre"): (0.8, -1.4, -1.4, 0.8),
    ("general", "post"): (math.nan, math.nan, -15.5, -15.5),
}
# cells with two heaps have no mean worth the name: the share of seeds that smoothed is documented instead
_HEAPS: dict[tuple[Form, str | None, Mode], float] = {("general", "post", "sharpening"): 6 / 20}
_HEAP_SEEDS = 20
_COLLAPSED = -3.0  # log10 HFC/LFC: below, the value is where rounding or the iterations ended, not a level


@dataclass(frozen=True)
class TableCell:
    """One cell: log10 HFC/LFC of every seed, γ of each with the norm folded in and of H alone, what is documented."""

    scenario: Scenario
    values: tuple[float, ...]
    exponents: tuple[float, ...]
    bare_exponents: tuple[float, ...]
    documented: float  # nan for a cell of two heaps
    documented_share: float | None = None

    @property
    def mean(self) -> float:
        """Over seeds; says nothing where `bimodal`."""
        return mean(self.values)

    @property
    def std(self) -> float:
        """The standard deviation over seeds."""
        return stdev(self.values) if len(self.values) > 1 else 0.0

    @property
    def smoothed(self) -> float:
        """The share of seeds that smoothed."""
        return mean(value < 0 for value in self.values)

    @property
    def bimodal(self) -> bool:
        """Whether some seeds collapsed and others sharpened: report the shares, not a mean."""
        return min(self.values) < _COLLAPSED and max(self.values) > 0

    @property
    def heaps(self) -> tuple[float, float]:
        """The medians of the seeds that smoothed and of those that did not."""
        low, high = [v for v in self.values if v < 0], [v for v in self.values if v >= 0]
        return median(low) if low else math.nan, median(high) if high else math.nan

    @property
    def right(self) -> int:
        """The seeds in which γ with the norm folded in has the sign of the outcome."""
        return sum((gamma < 0) == (value < 0) for gamma, value in zip(self.exponents, self.values, strict=True))

    @property
    def bare_right(self) -> int:
        """The seeds in which γ of H alone has the sign of the outcome."""
        return sum((gamma < 0) == (value < 0) for gamma, value in zip(self.bare_exponents, self.values, strict=True))

    @property
    def agrees(self) -> bool:
        """The documented sign, and within ±0.6 where the value documented lies above −3; two heaps: the share."""
        if self.documented_share is not None:
            p = self.documented_share
            return abs(self.smoothed - p) <= 2 * math.sqrt(p * (1 - p) * (1 / len(self.values) + 1 / _HEAP_SEEDS))
        same = (self.mean < 0) == (self.documented < 0)
        return same and (self.documented < _COLLAPSED or abs(self.mean - self.documented) <= 0.6)


def norm_impact_table(
    seeds: Iterable[int] = range(20),
    layers: int = 128,
    x: Tensor | None = None,
    tokens: int = 64,
    dim: int = 32,
    track: Callable[[Iterable[int]], Iterable[int]] = iter,
) -> list[TableCell]:
    """All 20 cells; `track` wraps the seeds to show progress."""
    drawn: dict[Scenario, list[tuple[float, float, float]]] = {scenario: [] for scenario in scenarios()}
    for seed in track(list(seeds)):
        for scenario, found in drawn.items():
            layer = draw(scenario, seed, x, tokens, dim)
            end = float(layer.curve(layers)[-1].log10())
            found.append((end, layer.exponent(), layer.exponent(folded=False)))
    cells = []
    for scenario, found in drawn.items():
        s = scenario
        documented = _DOCUMENTED[s.form, s.norm][COLUMNS.index((s.mode, s.sign))]
        values, exponents, bare = zip(*found, strict=True)
        cells.append(TableCell(s, values, exponents, bare, documented, _HEAPS.get((s.form, s.norm, s.mode))))
    return cells
