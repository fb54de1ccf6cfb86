"""Section 5's table of theory.md beside what is simulated now."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor

from unsmooth.theory.scenario import Form, Mode, Scenario, log10_table

# log10 HFC/LFC after 128 iterations, mean of 5 seeds, as documented in theory.md, in the order of _CELLS
_CELLS: tuple[tuple[Mode, int], ...] = (("sharpening", 1), ("sharpening", -1), ("smoothing", 1), ("smoothing", -1))
_DOCUMENTED: dict[tuple[Form, str | None], tuple[float, ...]] = {
    ("symmetric", None): (1.9, math.nan, -15.6, math.nan),
    ("symmetric", "pre"): (1.4, -1.7, -1.7, 1.4),
    ("symmetric", "post"): (1.8, 1.8, -15.7, -15.7),
    ("general", None): (1.9, math.nan, -14.5, math.nan),
    ("general", "pre"): (-0.6, -0.0, -1.8, 1.2),
    ("general", "post"): (-8.6, -8.6, -15.5, -15.5),
}


@dataclass(frozen=True)
class Cell:
    """One cell: mean and standard deviation over seeds, the share of seeds that smoothed, the documented value."""

    scenario: Scenario
    mean: float
    std: float
    smoothed: float
    documented: float

    @property
    def agrees(self) -> bool:
        """The documented sign, and within ±0.6 where the documented value lies above −3 (−0.0 is negative)."""
        same = (self.mean < 0) == (math.copysign(1, self.documented) < 0)
        return same and (self.documented < -3 or abs(self.mean - self.documented) <= 0.6)


def section5_table(
    seeds: Iterable[int] = range(20), layers: int = 128, x: Tensor | None = None, tokens: int = 64, dim: int = 32
) -> list[Cell]:
    """All 20 cells. Pre-LN's cells come in equal pairs: negating H and γ together changes nothing."""
    cells = []
    for scenario, values in log10_table(seeds, layers, x, tokens, dim).items():
        documented = _DOCUMENTED[scenario.form, scenario.norm][_CELLS.index((scenario.mode, scenario.sign))]
        spread = float(values.std()) if len(values) > 1 else 0.0
        cells.append(Cell(scenario, float(values.mean()), spread, float((values < 0).double().mean()), documented))
    return cells
