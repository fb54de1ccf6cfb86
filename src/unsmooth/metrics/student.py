"""Student's t, so that an interval from few samples is as wide as it must be."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np


@lru_cache(maxsize=4096)
def student_95(freedom: float) -> float:
    """The t with P(|T| < t) = 95 % for that many degrees of freedom; 1.96 in the limit, nan below one.

    With T = √ν tan θ the density of θ is proportional to cos^(ν−1) θ on (−π/2, π/2), so one sum gives it.

    >>> round(student_95(1), 2), round(student_95(7), 3), round(student_95(1e6), 3)
    (12.71, 2.365, 1.96)
    """
    if not freedom >= 1:
        return math.nan
    theta = np.linspace(0.0, min(math.pi / 2, 12 / math.sqrt(freedom)), 20001)
    density = np.cos(theta) ** (freedom - 1)
    mass = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    return math.sqrt(freedom) * math.tan(float(np.interp(0.95 * mass[-1], mass, theta)))
