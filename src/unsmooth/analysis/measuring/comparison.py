"""Two measurements side by side."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from unsmooth.analysis.measuring.cells import kind_of, layer_of
from unsmooth.analysis.measuring.measurement import Measurement
from unsmooth.analysis.measuring.pairing import pair
from unsmooth.errors import UnsmoothError
from unsmooth.metrics.differences import holm, paired_difference, welch_interval
from unsmooth.metrics.moments import Moments
from unsmooth.metrics.registry import metric_named
from unsmooth.metrics.student import student_p

if TYPE_CHECKING:
    import pandas as pd

Values = npt.NDArray[np.float64]


def compare(a: Measurement, b: Measurement) -> pd.DataFrame:
    """Difference `b − a` for every number that both have, with its 95 % interval and its definition.

    If both have the same inputs (see `pair`), samples are compared in pairs, and `pairs` is their number; otherwise the
    interval is Welch's. Where it excludes zero, `smoother` says which of the two is smoother. `p` is for that number
    alone, and `p_holm` is corrected for all rows: if it is below 0.05, a difference can be claimed although many
    numbers were compared. The two may come from different models; numbers that only one of them has are left out.
    """
    import pandas as pd

    for given in (a, b):
        if not isinstance(given, Measurement):
            raise UnsmoothError(
                f"expected two measurements, as unsmooth.measure or unsmooth.load give them, got {type(given).__name__}"
            )
    shared = [cell for cell in a.cells if cell in b.cells]
    if not shared:
        raise UnsmoothError("the two measurements share no point, metric and token policy: measure both alike")
    pairing = pair(a, b)
    rows = []
    for cell in shared:
        if a.definition(cell.metric, cell.tokens) != b.definition(cell.metric, cell.tokens):
            raise UnsmoothError(
                f"{cell.metric} ({cell.tokens} tokens) is defined differently in the two measurements: measure both "
                "with one version of unsmooth"
            )
        alone = pairing.places is None
        found = welch(a.cells[cell], b.cells[cell]) if alone else paired(*pairing.values(a, b, cell))
        rows.append(
            {
                "point": cell.point,
                "layer": layer_of(cell.point),
                "kind": kind_of(cell.point),
                "metric": cell.metric,
                "tokens": cell.tokens,
                **found,
                "smoother": _smoother(found, metric_named(cell.metric).sign),
                "interval": "Welch" if alone else "paired",
                "definition": a.definition(cell.metric, cell.tokens),
            }
        )
    frame = pd.DataFrame(rows).astype({"layer": "Int64"})
    frame["p_holm"] = holm(frame["p"].to_list())
    return frame


def _smoother(found: dict[str, float], sign: int) -> str:
    """Which of the two is smoother here, `a` or `b`; nothing where they do not differ."""
    if not found["differs"]:
        return ""
    return "b" if found["difference"] * sign > 0 else "a"


def paired(a: Values, b: Values) -> dict[str, float]:
    """Student's 95 % interval for the mean of `b − a`, sample by sample; nan below two samples.

    >>> found = paired(np.array([1.0, 2.0, 3.0]), np.array([1.1, 2.2, 3.3]))
    >>> round(found["difference"], 3), round(found["high"], 3)  # t of two degrees of freedom, 4.303, times 0.1 / √3
    (0.2, 0.448)
    """
    found = paired_difference(a, b)
    first, second = (float(x.mean()) if len(x) else math.nan for x in (a, b))
    return _row(first, second, found.mean, (found.high - found.low) / 2, found.p, len(a))


def welch(a: Moments, b: Moments) -> dict[str, float]:
    """Welch's 95 % interval for the difference of two means."""
    half, freedom = welch_interval((a.sem, b.sem), (a.count, b.count))
    error = math.hypot(a.sem, b.sem)
    p = student_p((b.mean - a.mean) / error, freedom) if error > 0 else math.nan
    return _row(a.mean, b.mean, b.mean - a.mean, half, p, 0)


def _row(a: float, b: float, difference: float, half: float, p: float, pairs: int) -> dict[str, float]:
    return {
        "a": a,
        "b": b,
        "difference": difference,
        "low": difference - half,
        "high": difference + half,
        "differs": abs(difference) > half,
        "p": p,
        "pairs": pairs,
    }


def welch_half_width(a: Moments, b: Moments) -> float:
    """Half of Welch's 95 % interval for the difference of two means; nan where one has fewer than two samples."""
    return welch_interval((a.sem, b.sem), (a.count, b.count))[0]
