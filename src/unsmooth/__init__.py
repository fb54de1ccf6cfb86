"""Measure, explain and control oversmoothing in Transformers."""

from unsmooth.control import ControlMonitor, apply_fix, bake, parameter_groups, reparametrize
from unsmooth.explain import Explanation, dominance, explain, layer_exponent, limit, load_explanation, simulate
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
from unsmooth.models import Family, load_model, register_family
from unsmooth.watch import Limit, SmoothingAlarm, watch

__version__ = "0.1.0"

__all__ = [
    "ControlMonitor",
    "Explanation",
    "Family",
    "Limit",
    "Measurement",
    "Measurer",
    "SmoothingAlarm",
    "apply_fix",
    "bake",
    "compare",
    "cosine_similarity",
    "dominance",
    "effective_rank",
    "explain",
    "hfc_lfc_ratio",
    "layer_exponent",
    "limit",
    "load_explanation",
    "load_measurement",
    "load_model",
    "measure",
    "parameter_groups",
    "register_family",
    "reparametrize",
    "simulate",
    "watch",
]
