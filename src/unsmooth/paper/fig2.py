"""Figure 2, CIFAR-100 column: the three metrics by depth of plain, sharpening and smoothing models."""

from __future__ import annotations

from dataclasses import replace

from unsmooth.errors import DataError
from unsmooth.paper.changes import variant_of
from unsmooth.paper.depth import about, curves, data_names, ends_table, measured_models, shipped_models
from unsmooth.paper.item import Context, Item, Result


def run(context: Context) -> Result:
    """Measure the variants that are there and draw their curves."""
    named = bool(context.models)
    chosen = context.models or tuple(text for text in shipped_models() if variant_of(text) is not None)
    if not chosen:
        raise DataError("no trained model is here: train one (`unsmooth train cifar100 …`) and name it with --model")
    measurements = measured_models(replace(context, models=chosen))
    there = {variant_of(name) for name in measurements} - {None}
    missing = sorted({"plain", "sharpening", "smoothing"} - there)
    notes = [
        "the paper says: on CIFAR-100 the sharpening model reduces smoothing in all metrics, the smoothing model "
        "increases it; it prints curves, not numbers"
    ]
    if missing:
        notes.append(f"no model of the variant {', '.join(missing)} was given or ships yet")
    kind = "models that you named" if named else "the models that ship with unsmooth"
    return Result(
        label=f"Figure 2's CIFAR-100 column with {kind}, on {data_names(measurements)}",
        tables=[ends_table(measurements, "Along the residual stream")],
        figures={"fig2": curves(measurements)},
        notes=notes,
        about=about(measurements),
    )


ITEM = Item(
    "fig2",
    "paper",
    "Influencing smoothing: the three metrics by depth for plain, sharpening and smoothing models (CIFAR-100 column)",
    needs="the shipped models, on the bundled pictures unless --data names CIFAR-100's test parquet; seconds. "
    "--model NAME=REFERENCE for your own. The ImageNet and Pile columns need models that are not public.",
    run=run,
)
