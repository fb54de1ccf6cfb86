"""Model and batches in, typed results out: measurements, explanations, the tokens of one example."""

from unsmooth.analysis.collection import collect
from unsmooth.analysis.comparison import compare
from unsmooth.analysis.explainer import Explainer, explain
from unsmooth.analysis.explanation import Explanation, load_explanation
from unsmooth.analysis.measurement import Measurement, load_measurement
from unsmooth.analysis.measurer import Measurer, measure
from unsmooth.analysis.subject import Subject
from unsmooth.analysis.token_view import TokenView

__all__ = [
    "Explainer",
    "Explanation",
    "Measurement",
    "Measurer",
    "Subject",
    "TokenView",
    "collect",
    "compare",
    "explain",
    "load_explanation",
    "load_measurement",
    "measure",
]
