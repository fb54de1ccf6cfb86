"""Evaluate a model that `train` wrote: clean test images, smoothing, and regenerated CIFAR-100-C."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from unsmooth.errors import CheckpointError
from unsmooth.train.corruptions import CORRUPTIONS, SEVERITIES, corrupt
from unsmooth.train.evaluate import evaluate
from unsmooth.train.images import ImageSet, load_images
from unsmooth.train.model import load_trained
from unsmooth.train.observe import smoothing_by_depth
from unsmooth.train.recipes import Recipe
from unsmooth.train.subset import check_images

NAME = "regenerated CIFAR-100-C"
DEFINITION = "After each block: Frobenius HFC/LFC, signed cosine over pairs, effective rank from σ; all tokens"


def trained_folder(reference: str) -> Path:
    """The folder behind `zoo:NAME` or a path."""
    if reference.startswith("zoo:"):
        from unsmooth.models.load import zoo_folder

        folder = zoo_folder() / reference.removeprefix("zoo:")
        if not folder.is_dir():
            have = sorted(path.parent.name for path in zoo_folder().glob("*/config.json"))
            raise CheckpointError(f"no model {reference}; available: {', '.join(have) or 'none'}")
        return folder
    return Path(reference)


def evaluate_trained(
    reference: str,
    data: str | Path,
    *,
    corruptions: bool = False,
    limit: int | None = None,
    batch_size: int = 500,
    seed: int = 0,
    device: torch.device | str = "cpu",
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Plain values for tables and JSON; `limit` takes the first images of the canonical order."""
    model, config = load_trained(trained_folder(reference))
    recipe = Recipe.from_dict(config["recipe"])
    model = model.to(device)
    test = load_images(data, "test")
    check_images(test, recipe, "test")
    if limit is not None:
        test = test.take(torch.arange(min(limit, len(test))))
    clean = evaluate(model, test.pixels, test.labels, recipe, batch_size, precision="float32")
    smoothing = smoothing_by_depth(model, test.pixels[: recipe.metric_images], recipe)
    found: dict[str, Any] = {
        "model": reference,
        "variant": config["variant"],
        "clean": clean.as_dict(),
        "smoothing": smoothing,
        "smoothing_definition": f"{DEFINITION}; mean over {min(len(test), recipe.metric_images)} images",
    }
    if corruptions:
        found["corruptions"] = corrupted_accuracy(model, test, recipe, batch_size, seed, progress)
    return found


def corrupted_accuracy(
    model: nn.Module,
    test: ImageSet,
    recipe: Recipe,
    batch_size: int = 500,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Accuracy for each corruption and severity, and the mean over corruptions."""
    accuracy: dict[str, dict[str, float]] = {}
    for number, name in enumerate(CORRUPTIONS, 1):
        row = {}
        for severity in SEVERITIES:
            pixels = corrupt(test.pixels, name, severity, seed)
            row[str(severity)] = evaluate(model, pixels, test.labels, recipe, batch_size).accuracy
        accuracy[name] = row
        if progress is not None:
            progress(number, len(CORRUPTIONS))
    mean = {str(s): sum(row[str(s)] for row in accuracy.values()) / len(accuracy) for s in SEVERITIES}
    return {"name": NAME, "seed": seed, "accuracy": accuracy, "mean": mean}
