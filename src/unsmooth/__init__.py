"""Measure, explain and control oversmoothing in Transformers."""

from unsmooth.measure import (
    Measurement,
    Measurer,
    compare,
    cosine_similarity,
    effective_rank,
    hfc_lfc_ratio,
    load_measurement,
    measure,
)
from unsmooth.models import Family, register_family

__version__ = "0.1.0"

__all__ = [
    "Family",
    "Measurement",
    "Measurer",
    "compare",
    "cosine_similarity",
    "effective_rank",
    "hfc_lfc_ratio",
    "load_measurement",
    "measure",
    "register_family",
]
