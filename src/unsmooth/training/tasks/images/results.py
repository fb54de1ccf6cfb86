"""What stays of a trained model that is too large to keep: its record, scores, measurement and explanations."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from jaxtyping import UInt8
from torch import Tensor

from unsmooth.analysis import Origin, attribute, explain, measure
from unsmooth.errors import UnsmoothError
from unsmooth.sources.trained import load_trained
from unsmooth.training.engine.record import RECORD, TrainingRecord
from unsmooth.training.engine.results import check_results
from unsmooth.training.tasks.images.data import load_images
from unsmooth.training.tasks.images.encoded import open_encoded
from unsmooth.training.tasks.images.evaluation import evaluate_trained
from unsmooth.training.tasks.images.reading import some_centres
from unsmooth.training.tasks.images.recipe import ImageRecipe
from unsmooth.training.tasks.images.scores import normalised
from unsmooth.training.tasks.images.stream import image_input

MEASURED, BATCH = 128, 16  # images of the test set, always the same; one batch is explained
MADE = ("evaluation.json", "measurement.json", "explanation.json", "attribution.json")
Say = Callable[[str], None]


def write_results(
    folder: Path, data: str | Path, target: Path, *, device: torch.device | str = "cpu", say: Say = print
) -> None:
    """Evaluate, measure, explain and attribute the model in a run's folder; what `target` has is not made again."""
    if all((target / name).exists() for name in (*MADE, RECORD)):
        return
    record = TrainingRecord.load(folder)
    model, config = load_trained(folder)
    recipe, model = ImageRecipe.from_dict(config["recipe"]), model.to(device)
    check_results(target, folder)
    target.mkdir(parents=True, exist_ok=True)
    origin = Origin(record.run, record.weights, f"the test images of {recipe.name}", "images", record.command)
    batches = list(normalised(_some_images(data, recipe, MEASURED), recipe, model, BATCH))
    makers: tuple[Callable[[], Any], ...] = (
        lambda: evaluate_trained(str(folder), data, device=device),
        lambda: measure(model, batches, origin=origin),
        lambda: explain(model, batches[:1], origin=origin),
        lambda: attribute(model, batches[:1], origin=origin),
    )
    for name, make in zip(MADE, makers, strict=True):
        if (target / name).exists():
            continue
        try:
            make().save(target / name)
        except UnsmoothError as error:  # what can be made is made: the weights may not stay
            say(f"{record.run}: no {name} ({error})")
    shutil.copyfile(folder / RECORD, target / RECORD)


def _some_images(data: str | Path, recipe: ImageRecipe, count: int) -> UInt8[Tensor, "image channel height width"]:
    if recipe.stream:
        return some_centres(open_encoded(data, "test"), image_input(recipe), count)
    return load_images(data, "test").pixels[:count]
