"""Model and batches in, typed results out: measurements, explanations, the tokens of one example."""

from unsmooth.analysis.about import About, Origin
from unsmooth.analysis.analyse import analyse
from unsmooth.analysis.attributing.attribution import Attribution
from unsmooth.analysis.attributing.attributor import Attributor, attribute
from unsmooth.analysis.explaining.explainer import Explainer, explain
from unsmooth.analysis.explaining.explanation import Explanation
from unsmooth.analysis.measuring.comparison import compare
from unsmooth.analysis.measuring.features import measure_features
from unsmooth.analysis.measuring.measurement import Measurement
from unsmooth.analysis.measuring.measurer import Measurer, measure
from unsmooth.analysis.results import load, load_explanation, load_measurement
from unsmooth.analysis.subject import Subject
from unsmooth.analysis.sweep import Sweep
from unsmooth.analysis.token_view import TokenView

__all__ = [
    "About",
    "Attribution",
    "Attributor",
    "Explainer",
    "Explanation",
    "Measurement",
    "Measurer",
    "Origin",
    "Subject",
    "Sweep",
    "TokenView",
    "analyse",
    "attribute",
    "compare",
    "explain",
    "load",
    "load_explanation",
    "load_measurement",
    "measure",
    "measure_features",
]
