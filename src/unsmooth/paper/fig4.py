"""Figure 4: the three metrics by depth, for different models and data."""

from __future__ import annotations

from dataclasses import replace

from unsmooth.figures import depth
from unsmooth.paper.columns import kept_groups
from unsmooth.paper.depth import (
    about,
    data_names,
    ends_table,
    measured_models,
    random_model,
    shipped_models,
)
from unsmooth.paper.effects import oscillation_in_words
from unsmooth.paper.item import Context, Item, Result
from unsmooth.paper.pretrained import PUBLISHED, spelled_out


def run(context: Context) -> Result:
    """Measure the models and draw their curves."""
    asked = spelled_out(context.models)
    if asked == PUBLISHED:
        kind = "the paper's ImageNet models (timm's checkpoints, paper/pretrained.py)"
    elif asked:
        kind = "models that you named"
    else:
        asked = shipped_models()
        kind = "the models that ship with unsmooth, not the published ones"
    context = replace(context, models=asked)
    if asked:
        measurements = measured_models(context)
    else:
        measurements = {"ViT-Ti, random weights": random_model(context)}
        kind = "one untrained model, because no weights are here: not the published ones"
    notes: list[str] = []
    if asked == shipped_models():  # none at all where nothing shipped
        others = [group for group in kept_groups(context, notes) if group.variant == "plain"]
        measurements |= {
            f"{group.title} on {group.trained_on}": measurement
            for group in others
            if (measurement := group.models[0].measurement()) is not None
        }
        notes += oscillation_in_words(others)
    short = {name.partition(" (stand-in")[0]: found for name, found in measurements.items()}  # a legend is narrow
    return Result(
        label=f"Figure 4's form with {kind}, on {data_names(measurements)}",
        tables=[ends_table(measurements, "Along the residual stream")],
        figures={"fig4": depth(short)},
        notes=[
            "the paper says: ImageNet models approach their oversmoothing values with depth, ViT-Ti on CIFAR-100 moves "
            "away from them, Crammed BERT oscillates; it prints curves, not numbers",
            *notes,
        ],
        about=about(measurements),
    )


ITEM = Item(
    "fig4",
    "paper",
    "Smoothing behaviour: HFC/LFC, cosine similarity and effective rank by depth",
    needs="--model published --data IMAGES for the paper's ImageNet models: weights from the hub (about 3 GB) and "
    "ImageNet validation images. Any --model [NAME=]REFERENCE or RUN.json with --data does as well. "
    "Without --model: the models that ship with unsmooth, on the bundled pictures, seconds, no network, and the plain "
    "ImageNet and text models whose measurements lie in zoo/results/models (or --runs).",
    run=run,
)
