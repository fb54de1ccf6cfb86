"""Student's t and Fisher's F, so that an interval from few samples is as wide as it must be."""

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


def student_p(t: float, freedom: float) -> float:
    """P(|T| ≥ |t|): the two-sided p-value.

    >>> round(student_p(2.306, 8), 3), student_p(0.0, 8)
    (0.05, 1.0)
    """
    return fisher_p(t * t, 1, freedom)


def fisher_p(ratio: float, above: float, below: float) -> float:
    """P(F ≥ ratio) for `above` and `below` degrees of freedom.

    >>> round(fisher_p(4.433, 8, 8), 3)
    0.025
    """
    if math.isnan(ratio) or not min(above, below) > 0:
        return math.nan
    if math.isinf(ratio):
        return 0.0
    return incomplete_beta(below / (below + above * ratio), below / 2, above / 2)


def fisher_quantile(share: float, above: float, below: float) -> float:
    """The F that this share of the distribution lies below, by bisection of its logarithm.

    >>> round(fisher_quantile(0.975, 8, 8), 3)
    4.433
    """
    low, high = -700.0, 700.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if fisher_p(math.exp(middle), above, below) > 1 - share else (low, middle)
    return math.exp((low + high) / 2)


def incomplete_beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I_x(a, b), by its continued fraction (Lentz).

    >>> round(incomplete_beta(0.5, 2.0, 3.0), 4)  # P(at least 2 of 4 coins)
    0.6875
    """
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # where the fraction would converge slowly, its mirror image is quick
        return 1 - incomplete_beta(1 - x, b, a)
    log = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, 10_000):  # about √max(a, b) rounds are enough
        for term in (m * (b - m) * x / ((a - 1 + 2 * m) * (a + 2 * m)),
                     -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 1 + 2 * m))):  # fmt: skip
            d = 1 / (1 + term * d)
            c = 1 + term / c
            fraction *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return math.exp(log) * fraction / a
