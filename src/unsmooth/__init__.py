"""Measure, explain and control oversmoothing in Transformers."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

# Where public names come from, the cheapest first.
_ROOMS = ("errors", "metrics", "theory", "models", "sources", "analysis", "control", "callbacks", "page")

if not TYPE_CHECKING:  # or every misspelt name would pass as Any

    def __getattr__(name: str) -> Any:
        """Public names and their rooms are imported when they are first asked for: `import unsmooth` is quick."""
        if name in _ROOMS:
            return import_module(f"unsmooth.{name}")
        if name in __all__:
            for room in _ROOMS:
                module = import_module(f"unsmooth.{room}")
                if name in getattr(module, "__all__", vars(module)):
                    globals()[name] = getattr(module, name)
                    return globals()[name]
        raise AttributeError(f"module 'unsmooth' has no attribute {name!r}", name=name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_ROOMS})
