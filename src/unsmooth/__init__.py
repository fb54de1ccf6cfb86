"""Measure, explain and control oversmoothing in Transformers.

Features smooth when the tokens of an input become more similar from layer to layer. Similarity is measured by HFC/LFC
(the distance of the tokens from their mean, relative to the size of the mean), cosine similarity and effective rank.

    import unsmooth

    m = unsmooth.measure(model, batches)               # at every point of every layer; print(m), m.frame(), m.plot()
    e = unsmooth.explain(model, batches)               # why attention smooths or sharpens; e.by_layer(), e.plot()
    a = unsmooth.attribute(model, batches)             # which heads, MLPs and norms changed HFC/LFC; a.strongest()
    unsmooth.report(model, batches, out="report.html") # all of this on one page that opens without a network
    m.save("run.json"); unsmooth.load("run.json")      # a result says what it is and where it comes from
    unsmooth.compare(m, other)                         # every difference with its interval

Control acts on the eigenvalues of H, the product of attention's value and projection weights:

    unsmooth.reparametrize(model, "sharpening")        # train with no positive eigenvalue; then unsmooth.bake(model)
    unsmooth.adapt(model, "sharpening", rank=8)        # fine-tune with an update of H that has no positive eigenvalue
    unsmooth.edit(model, high=0.0)                     # move the eigenvalues of a trained model; .undo() restores it
    unsmooth.sweep(model, batches, loss)               # what such edits cost, by a loss(model) of your own
    with unsmooth.watch(model, probe, log=print): ...  # the metrics while a model trains

A model is a Transformer from timm, Hugging Face or torch. For one of your own,
`register_family(find_family(model, batch))` finds out where its parts are. Batches are tensors of images, dicts of a
tokenizer, or tuples that start with the input.

On tensors of shape (..., tokens, dim) alone there are `hfc_lfc_ratio(x)`, `cosine_similarity(x)`, `effective_rank(x)`
and their relatives; `register_metric` adds one. On matrices alone there are `dominance(a, w)`, `layer_exponent(a, w)`,
`limit(x, a, w)` and `simulate(x, a, w)`.

Every error that is raised on purpose is an `UnsmoothError` and says what was expected, what came, and what to do.
`unsmooth --help` shows the command line.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unsmooth.analysis import (
        Attribution,
        Explanation,
        Measurement,
        Measurer,
        Origin,
        Sweep,
        attribute,
        compare,
        explain,
        load,
        load_explanation,
        load_measurement,
        measure,
        measure_features,
    )
    from unsmooth.callbacks import Bound, SmoothingAlarm, watch
    from unsmooth.control import ControlMonitor, Edit, adapt, apply_fix, bake, edit, parameter_groups, reparametrize
    from unsmooth.errors import UnsmoothError
    from unsmooth.metrics import (
        Metric,
        Panel,
        cosine_similarity,
        dirichlet,
        dong2021,
        effective_rank,
        hfc_lfc_ratio,
        participation_ratio,
        rankme,
        register_metric,
        stable_rank,
        vita2022,
    )
    from unsmooth.models import Family, find_family, register_family
    from unsmooth.reporting import report
    from unsmooth.sources import load_model
    from unsmooth.sweeping import sweep
    from unsmooth.theory import dominance, layer_exponent, limit, simulate

__version__ = "0.2.0.dev0"

__all__ = [
    "Attribution",
    "Bound",
    "ControlMonitor",
    "Edit",
    "Explanation",
    "Family",
    "Measurement",
    "Measurer",
    "Metric",
    "Origin",
    "Panel",
    "SmoothingAlarm",
    "Sweep",
    "UnsmoothError",
    "adapt",
    "apply_fix",
    "attribute",
    "bake",
    "compare",
    "cosine_similarity",
    "dirichlet",
    "dominance",
    "dong2021",
    "edit",
    "effective_rank",
    "explain",
    "find_family",
    "hfc_lfc_ratio",
    "layer_exponent",
    "limit",
    "load",
    "load_explanation",
    "load_measurement",
    "load_model",
    "measure",
    "measure_features",
    "parameter_groups",
    "participation_ratio",
    "rankme",
    "register_family",
    "register_metric",
    "reparametrize",
    "report",
    "simulate",
    "stable_rank",
    "sweep",
    "vita2022",
    "watch",
]

# Where public names come from, the cheapest first.
_ROOMS = ("errors", "metrics", "theory", "models", "sources", "analysis", "control", "callbacks", "page", "reporting",
          "sweeping")  # fmt: skip

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
    hidden = ("Any", "TYPE_CHECKING", "import_module")
    return sorted({*globals(), *__all__, *_ROOMS}.difference(hidden))
