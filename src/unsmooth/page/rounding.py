"""What rounding alone may do to a metric, so that no sentence is made of it."""

from __future__ import annotations

import math

import numpy as np

from unsmooth.analysis import Measurement
from unsmooth.metrics.registry import DISTANCE, METRICS

ROUNDING = 64.0  # units of rounding


def rounding(measurement: Measurement, metric: str, size: float) -> float:
    """How far rounding may move a metric of that size in all samples alike, which no test over samples sees."""
    row, dtype = METRICS[metric], measurement.about.model.dtype
    least = 1.0 if row.panel == DISTANCE and not row.unit else 0.0  # what it is where HFC is as large as LFC
    return ROUNDING * float(np.finfo(np.float64 if dtype == "float64" else np.float32).eps) * max(size, least)


def meanless(measurement: Measurement, metric: str, value: float) -> bool:
    """Whether a value is that of tokens whose mean is 0 up to rounding: HFC/LFC divides by it.

    Infinite values are told apart, as no number.
    """
    row = METRICS[metric]
    return (
        row.panel == DISTANCE and not row.unit and math.isfinite(value) and value * rounding(measurement, metric, 0) > 1
    )
