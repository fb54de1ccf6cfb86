"""How smooth are features: metrics, token policies, and measuring them in a running model."""

from unsmooth.measure.comparison import compare
from unsmooth.measure.measurement import Measurement, load_measurement
from unsmooth.measure.measurer import Measurer, measure
from unsmooth.measure.metrics import cosine_similarity, effective_rank, hfc_lfc_ratio

__all__ = [
    "Measurement",
    "Measurer",
    "compare",
    "cosine_similarity",
    "effective_rank",
    "hfc_lfc_ratio",
    "load_measurement",
    "measure",
]
