"""Two measurements side by side."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from unsmooth.errors import UnsmoothError
from unsmooth.measure.measurement import Measurement, kind_of, layer_of

if TYPE_CHECKING:
    import pandas as pd

_Z95 = 1.959963984540054


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
        half = _Z95 * math.sqrt(sum(m.std**2 / m.count if m.count > 1 else math.nan for m in (first, second)))
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
