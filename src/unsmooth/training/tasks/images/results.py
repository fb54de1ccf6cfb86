"""What stays of a trained model that is too large to keep: its record, measurement, explanation and evaluation."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch

from unsmooth.analysis import Origin, explain, measure
from unsmooth.sources.trained import load_trained
from unsmooth.training.engine.record import RECORD, TrainingRecord
from unsmooth.training.tasks.images.data import load_images
from unsmooth.training.tasks.images.evaluate import normalised
from unsmooth.training.tasks.images.evaluation import evaluate_trained
from unsmooth.training.tasks.images.recipe import ImageRecipe

MEASURED, BATCH = 128, 16  # images of the test set, the first in its canonical order; the first batch is explained


def write_results(
    folder: Path, data: str | Path, results: Path, *, device: torch.device | str = "cpu", measured: int = MEASURED
) -> Path:
    """Measure, explain and evaluate the model in a run's folder; all files go to a folder of `results`.

    It is named after the run, without its seed where that is the first: `zoo/results/models` holds such folders.
    """
    record = TrainingRecord.load(folder)
    target = results / record.run.removesuffix("-seed0")
    if (target / RECORD).exists():  # written last
        return target
    target.mkdir(parents=True, exist_ok=True)
    evaluate_trained(str(folder), data, device=device).save(target / "evaluation.json")
    model, config = load_trained(folder)
    recipe, model = ImageRecipe.from_dict(config["recipe"]), model.to(device)
    test = load_images(data, "test")
    origin = Origin(record.run, record.weights, f"the test images of {recipe.name}", "images", record.command)
    batches = list(normalised(test.pixels[:measured], recipe, model, BATCH))
    measure(model, batches, origin=origin).save(target / "measurement.json")
    explain(model, batches[:1], origin=origin).save(target / "explanation.json")
    shutil.copyfile(folder / RECORD, target / RECORD)
    return target
