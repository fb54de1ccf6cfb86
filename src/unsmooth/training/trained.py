"""Evaluate a model that `train` wrote: clean test images, smoothing, and regenerated CIFAR-100-C."""

from __future__ import annotations

import inspect
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from unsmooth.errors import CheckpointError, OptionError
from unsmooth.training.checkpoint import find_checkpoint
from unsmooth.training.corruptions import CORRUPTIONS, SEVERITIES, corrupt_all
from unsmooth.training.evaluate import evaluate
from unsmooth.training.images import ImageSet, load_images
from unsmooth.training.journal import circumstances
from unsmooth.training.model import CONFIG, load_trained
from unsmooth.training.observe import smoothing_by_depth
from unsmooth.training.recipes import PRECISIONS, Recipe
from unsmooth.training.subset import check_images, same_classes

NAME = "regenerated CIFAR-100-C"
DEFINITION = "After each block: Frobenius HFC/LFC, signed cosine over pairs, effective rank from σ; all tokens"


def trained_folder(reference: str) -> Path:
    """The folder behind `zoo:NAME` or a path."""
    if reference.startswith("zoo:"):
        from unsmooth.sources.load import zoo_model

        return zoo_model(reference.removeprefix("zoo:"))
    wanted = "expected zoo:NAME or the folder of a model that `unsmooth train` wrote"
    if reference.startswith(("timm:", "hf:")):
        raise OptionError(f"{reference} was not trained here: {wanted}")
    folder = Path(reference)
    if not (folder / CONFIG).is_file():
        if find_checkpoint(folder) is not None:
            raise CheckpointError(f"the run in {folder} is not finished: run its command again, it goes on by itself")
        raise CheckpointError(f"no model at {reference!r}, for there is no file {folder / CONFIG}: {wanted}")
    return folder


def evaluate_trained(
    reference: str,
    data: str | Path,
    *,
    corruptions: bool = False,
    limit: int | None = None,
    batch_size: int = 500,
    seed: int = 0,
    metric_images: int = 256,
    device: torch.device | str = "cpu",
    precision: str = "float32",
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Plain values for tables and JSON; `limit` takes the first images of the canonical order.

    `precision` "bf16" classifies by autocast on CUDA, as training did; a CPU computes in float32 in any case.
    """
    if precision not in PRECISIONS:
        raise OptionError.unknown("precision", precision, PRECISIONS)
    for name, count in (("limit", limit), ("batch_size", batch_size), ("metric_images", metric_images)):
        if count is not None and count < 1:
            raise OptionError(f"{name} must be at least 1, got {count}")
    model, config = load_trained(trained_folder(reference))
    recipe = Recipe.from_dict(config["recipe"])
    model = model.to(device)
    test = load_images(data, "test")
    check_images(test, recipe, "test", remedy=False)
    same_classes(config.get("class_names", ()), test.class_names, "the model and the data")
    if limit is not None:
        test = test.take(torch.arange(min(limit, len(test))))
    clean = evaluate(model, test.pixels, test.labels, recipe, batch_size, precision)
    shown = test.pixels[:metric_images]
    options: dict[str, Any] = {"corruptions": corruptions, "limit": limit, "batch_size": batch_size, "seed": seed}
    options |= {"metric_images": metric_images, "precision": precision}
    found: dict[str, Any] = {
        "model": shown_name(reference),
        **circumstances(torch.device(device)),
        "command": command_of_evaluation(reference, **options),
        **{key: config.get(key) for key in ("run", "variant", "seed", "fraction")},
        "precision": precision if torch.device(device).type == "cuda" else "float32",
        "clean": clean.as_dict(),
        "smoothing": smoothing_by_depth(model, shown, recipe),
        "smoothing_definition": f"{DEFINITION}; mean over {len(shown)} images",
    }
    if corruptions:
        found["corruptions"] = corrupted_accuracy(model, test, recipe, batch_size, seed, precision, progress)
    return found


def shown_name(reference: str) -> str:
    """`zoo:NAME`, or a folder's name: results travel, and paths mean nothing elsewhere."""
    return reference if reference.startswith("zoo:") else Path(reference).resolve().name


def command_of_evaluation(reference: str, **options: Any) -> str:
    """The command line that repeats an evaluation: options that differ from the defaults, no path of this machine.

    >>> command_of_evaluation("runs/plain", corruptions=True, limit=None, precision="bf16")
    'unsmooth evaluate plain --data PATH --corruptions --precision bf16'
    """
    standard = inspect.signature(evaluate_trained).parameters
    words = ["unsmooth", "evaluate", shown_name(reference), "--data", "PATH"]
    for key, value in options.items():
        if value != standard[key].default:
            words += [f"--{key.replace('_', '-')}", *([] if value is True else [str(value)])]
    return shlex.join(words)


def corrupted_accuracy(
    model: nn.Module,
    test: ImageSet,
    recipe: Recipe,
    batch_size: int = 500,
    seed: int = 0,
    precision: str = "float32",
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Accuracy for each corruption and severity, and the mean over corruptions."""
    accuracy: dict[str, dict[str, float]] = {name: {} for name in CORRUPTIONS}
    cuda = next(model.parameters()).is_cuda
    workers = max(1, (os.cpu_count() or 2) // 2) if cuda else 1  # on a CPU the model is what takes the time
    for number, (name, severity, pixels) in enumerate(corrupt_all(test.pixels, seed, workers), 1):
        found = evaluate(model, pixels, test.labels, recipe, batch_size, precision)
        accuracy[name][str(severity)] = found.accuracy
        if progress is not None:
            progress(number, len(CORRUPTIONS) * len(SEVERITIES))
    mean = {str(s): sum(row[str(s)] for row in accuracy.values()) / len(accuracy) for s in SEVERITIES}
    return {"name": NAME, "seed": seed, "accuracy": accuracy, "mean": mean}
