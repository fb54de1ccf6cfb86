"""What stays of a trained model that is too large to keep: its record, measurement, explanation and evaluation."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from jaxtyping import UInt8
from torch import Tensor

from unsmooth.analysis import Origin, explain, measure
from unsmooth.sources.trained import load_trained
from unsmooth.training.engine.record import RECORD, TrainingRecord
from unsmooth.training.tasks.images.data import load_images
from unsmooth.training.tasks.images.encoded import open_encoded
from unsmooth.training.tasks.images.evaluate import normalised
from unsmooth.training.tasks.images.evaluation import evaluate_trained
from unsmooth.training.tasks.images.recipe import ImageRecipe
from unsmooth.training.tasks.images.stream import first_centres, image_input

MEASURED, BATCH = 128, 16  # images of the test set, the first in its canonical order; the first batch is explained


def write_results(folder: Path, data: str | Path, target: Path, *, device: torch.device | str = "cpu") -> None:
    """Measure, explain and evaluate the model in a run's folder; `target` is a folder of zoo/results/models."""
    record = TrainingRecord.load(folder)
    if (target / RECORD).exists():  # written last
        return
    target.mkdir(parents=True, exist_ok=True)
    evaluate_trained(str(folder), data, device=device).save(target / "evaluation.json")
    model, config = load_trained(folder)
    recipe, model = ImageRecipe.from_dict(config["recipe"]), model.to(device)
    origin = Origin(record.run, record.weights, f"the test images of {recipe.name}", "images", record.command)
    batches = list(normalised(_first_images(data, recipe, MEASURED), recipe, model, BATCH))
    measure(model, batches, origin=origin).save(target / "measurement.json")
    explain(model, batches[:1], origin=origin).save(target / "explanation.json")
    shutil.copyfile(folder / RECORD, target / RECORD)


def _first_images(data: str | Path, recipe: ImageRecipe, count: int) -> UInt8[Tensor, "image channel height width"]:
    if recipe.stream:
        return first_centres(open_encoded(data, "test"), image_input(recipe), count)
    return load_images(data, "test").pixels[:count]
