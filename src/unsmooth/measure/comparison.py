"""Two measurements side by side."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from unsmooth.errors import UnsmoothError
from unsmooth.measure.measurement import Measurement, kind_of, layer_of
from unsmooth.measure.moments import Moments
from unsmooth.student import student_95

if TYPE_CHECKING:
    import pandas as pd


def compare(a: Measurement, b: Measurement) -> pd.DataFrame:
    """Difference `b − a` for every number that both hold, with Welch's 95 % interval and both definitions' text.

    The two need not come from the same model: what they share is compared, what they don't is left out.
    """
    import pandas as pd

    shared = [cell for cell in a.cells if cell in b.cells]
    if not shared:
        raise UnsmoothError("the two measurements share no point, metric and token policy: nothing to compare")
    rows = []
    for cell in shared:
        first, second = a.cells[cell], b.cells[cell]
        if a.definition(cell.metric, cell.tokens) != b.definition(cell.metric, cell.tokens):
            raise UnsmoothError(f"{cell.metric} ({cell.tokens} tokens) is defined differently in the two measurements")
        difference = second.mean - first.mean
        half = welch_half_width(first, second)
        rows.append(
            {
                "point": cell.point,
                "layer": layer_of(cell.point),
                "kind": kind_of(cell.point),
                "metric": cell.metric,
                "tokens": cell.tokens,
                "a": first.mean,
                "b": second.mean,
                "difference": difference,
                "low": difference - half,
                "high": difference + half,
                "differs": abs(difference) > half,
                "definition": a.definition(cell.metric, cell.tokens),
            }
        )
    return pd.DataFrame(rows).astype({"layer": "Int64"})


def welch_half_width(a: Moments, b: Moments) -> float:
    """Half of Welch's 95 % interval for the difference of two means; nan where one has fewer than two samples.

    >>> same = Moments(count=2, mean=0.0, square=0.5)
    >>> round(welch_half_width(same, same), 3)  # t of two degrees of freedom, 4.303, times √(0.25 + 0.25)
    3.042
    """
    if min(a.count, b.count) < 2:
        return math.nan
    first, second = a.sem**2, b.sem**2
    total = first + second
    if not total > 0:
        return total  # no spread at all, or one that is not a number
    # Welch and Satterthwaite's degrees of freedom
    freedom = total**2 / (first**2 / (a.count - 1) + second**2 / (b.count - 1))
    return student_95(round(freedom, 3)) * math.sqrt(total)
