"""Tables 1–3, CIFAR-100 columns: change by kind of layer of our models, in both readings, beside the published."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from unsmooth.errors import DataError
from unsmooth.paper.depth import about, data_names, shipped_models
from unsmooth.paper.item import Context, Result, Table, Value
from unsmooth.paper.published import cifar100_column, published

if TYPE_CHECKING:
    from unsmooth.measure import Measurement

KINDS = ("LayerNorm", "Attention", "MLP")
READINGS = ("chain", "residual")
CLEARLY = 0.8  # a mean gap below this share of the other one's is clearly smaller


def run_table(name: str, metric: str, context: Context) -> Result:
    """Measure the models and put the mean changes beside the published column of their variant."""
    named = bool(context.models)
    context = context if named else replace(context, models=shipped_models())
    if not context.models:
        raise DataError("no trained model is here: train one (`unsmooth train cifar100 …`) and name it with --model")
    found = {key: value for key, value in _measured(context, metric).items() if variant_of(key) is not None}
    if not found:
        raise DataError("no model of a known variant: its name must contain plain, sharpening or smoothing")
    rows: list[list[Value]] = []
    for model, measurement in found.items():
        theirs = cifar100_column(name, variant_of(model) or "")
        for reading in READINGS:
            ours = mean_changes(measurement, metric, reading)
            for kind in KINDS:
                if kind in ours:
                    sign = "sign differs" if ours[kind] * theirs[kind] < 0 else None
                    rows.append([model, reading, kind, f"{ours[kind]:+.3f}", f"{theirs[kind]:+.3f}", sign])
    what = "models that you named" if named else "the shipped models"
    return Result(
        label=f"CIFAR-100 columns with {what}, on {data_names(found)}",
        tables=[Table(published(name)["about"], ["model", "reading", "kind", "ours", "published", "note"], rows)],
        notes=[
            better_reading(name, metric, found),
            "shipped models may be trained on a part of the data: see their names",
        ],
        about=about(found),
    )


def variant_of(name: str) -> str | None:
    """The variant that a model's name tells.

    >>> variant_of("cifar100-10pct-sharpening")
    'sharpening'
    """
    return next((v for v in ("sharpening", "smoothing", "plain") if v in name), None)


def mean_changes(measurement: Measurement, metric: str, reading: str) -> dict[str, float]:
    """Mean change of the metric by kind of layer, all tokens."""
    frame = measurement.change_by_kind(reading)
    frame = frame[(frame["metric"] == metric) & (frame["tokens"] == "all")]
    return dict(zip(frame["kind"], frame["mean"].astype(float), strict=True))


def better_reading(name: str, metric: str, found: dict[str, Measurement]) -> str:
    """Which reading of "change" lies nearer to the published attention and MLP numbers."""
    gaps, signs = {}, {}
    for reading in READINGS:
        pairs = [
            (mean_changes(m, metric, reading)[kind], cifar100_column(name, variant_of(model) or "")[kind])
            for model, m in found.items()
            for kind in ("Attention", "MLP")  # `residual` has no LayerNorm
        ]
        gaps[reading] = sum(abs(a - b) for a, b in pairs) / len(pairs)
        signs[reading] = f"{sum(a * b > 0 for a, b in pairs)} of {len(pairs)}"
    shown = ", ".join(f"{r}: mean gap {gaps[r]:.3f}, {signs[r]} signs agree" for r in READINGS)
    low, high = sorted(READINGS, key=gaps.__getitem__)
    if gaps[low] > CLEARLY * gaps[high]:
        return f"neither reading of change clearly fits the published attention and MLP numbers ({shown})"
    return f"the reading `{low}` fits the published attention and MLP changes better ({shown})"


def _measured(context: Context, metric: str) -> dict[str, Measurement]:
    """At all points, since `chain` needs the norms' outputs."""
    from unsmooth.data import open_data
    from unsmooth.measure import load_measurement, measure
    from unsmooth.models import load_model
    from unsmooth.paper.depth import device_of, named, spread

    references = [named(text) for text in context.models]
    data = spread(context.data or ("bundled",), len(references))
    found = {}
    for (name, reference), path in zip(references, data, strict=True):
        if reference.endswith(".json"):
            found[name] = load_measurement(reference)
            continue
        loaded = load_model(reference, device=device_of(context))
        batches = open_data(path, loaded, batch_size=context.batch_size, limit=context.limit)
        found[name] = measure(loaded.model, batches, metric)
        found[name].about["model"] |= {"reference": loaded.reference, "weights": loaded.weights_hash}
        found[name].about["data"] |= {"reference": batches.reference, "kind": batches.kind}
    return found
