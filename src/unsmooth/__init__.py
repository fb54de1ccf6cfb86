"""Measure, explain and control oversmoothing in Transformers."""

from unsmooth.analysis import (
    Explanation,
    Measurement,
    Measurer,
    compare,
    explain,
    load_explanation,
    load_measurement,
    measure,
)
from unsmooth.callbacks import Bound, SmoothingAlarm, watch
from unsmooth.control import ControlMonitor, apply_fix, bake, parameter_groups, reparametrize
from unsmooth.metrics import cosine_similarity, effective_rank, hfc_lfc_ratio
from unsmooth.models import Family, register_family
from unsmooth.sources import load_model
from unsmooth.theory import dominance, layer_exponent, limit, simulate

__version__ = "0.1.0"

__all__ = [
    "Bound",
    "ControlMonitor",
    "Explanation",
    "Family",
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
