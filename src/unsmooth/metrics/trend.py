"""How a quantity follows another one: the slope of a straight line through all values, with its interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unsmooth.metrics.differences import with_interval
from unsmooth.metrics.student import student_95, student_p


@dataclass(frozen=True)
class Trend:
    """What a unit of x adds to y, with its 95 % interval; nan where there are too few values to say."""

    slope: float
    low: float
    high: float
    p: float
    values: int

    def text(self, digits: int = 2) -> str:
        """The slope with its interval.

        >>> Trend(-0.3, -0.5, -0.1, 0.01, 9).text()
        '-0.30 (-0.50 to -0.10)'
        """
        return with_interval(self.slope, self.low, self.high, digits)


def trend(x: Sequence[float], y: Sequence[float]) -> Trend:
    """Least squares; the scatter around the line is taken to be the same at every x.

    >>> found = trend([0, 0, 1, 1, 2, 2], [1.0, 1.2, 0.8, 0.6, 0.4, 0.2])
    >>> round(found.slope, 3), round(found.low, 3), round(found.high, 3)
    (-0.4, -0.57, -0.23)
    """
    across, up = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    along = across - across.mean()
    size, freedom = float(along @ along), len(up) - 2
    if not size:
        return Trend(math.nan, math.nan, math.nan, math.nan, len(up))
    slope = float(along @ up) / size
    left = up - up.mean() - slope * along
    error = math.sqrt(float(left @ left) / freedom / size) if freedom > 0 else math.nan
    half = student_95(freedom) * error
    p = student_p(slope / error, freedom) if error else float(slope == 0)
    return Trend(slope, slope - half, slope + half, p, len(up))
