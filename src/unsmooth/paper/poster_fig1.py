"""The poster's figure "Measuring oversmoothing": HFC/LFC by depth, untrained and trained."""

from __future__ import annotations

from dataclasses import replace

from unsmooth.figures import depth
from unsmooth.paper.depth import about, data_names, ends_table, measured_models, random_model, shipped_models
from unsmooth.paper.item import Context, Item, Result


def run(context: Context) -> Result:
    """HFC/LFC before and after training."""
    named = bool(context.models)
    context = replace(context, models=context.models or shipped_models())
    measurements = {"ViT-Ti, random weights": random_model(context, "hfc_lfc")}
    if context.models:
        measurements |= measured_models(context, "hfc_lfc")
    kind = "models that you named" if named else "the models that ship with unsmooth" if context.models else "no other"
    return Result(
        label=f"The poster's figure with an untrained ViT-Ti and {kind}, on {data_names(measurements)}",
        tables=[ends_table(measurements, "HFC/LFC along the residual stream")],
        figures={"poster-fig1": depth(measurements)},
        notes=["the poster shows CIFAR-100 and ImageNet models in panels of their own; here one panel holds all"],
        about=about(measurements),
    )


ITEM = Item(
    "poster-fig1",
    "poster",
    "Measuring oversmoothing: HFC/LFC by depth, untrained and trained",
    needs="nothing: an untrained ViT-Ti and the models that ship with unsmooth, on the bundled pictures, seconds. "
    "--model [NAME=]REFERENCE with --data IMAGES for others, such as ImageNet models from the hub.",
    run=run,
)
