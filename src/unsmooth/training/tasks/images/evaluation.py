"""Evaluate a model that `train` wrote: clean test images, smoothing, and regenerated CIFAR-100-C."""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from unsmooth.errors import CheckpointError, OptionError
from unsmooth.sources.files import read_object, write_result
from unsmooth.sources.trained import CONFIG, load_trained, read_config, trained_folder
from unsmooth.training.engine.observe import smoothing_by_depth
from unsmooth.training.engine.recipe import PRECISIONS
from unsmooth.training.engine.record import circumstances
from unsmooth.training.tasks.images.corruptions import CORRUPTIONS, SEVERITIES, corrupt_all
from unsmooth.training.tasks.images.data import ImageSet, load_images
from unsmooth.training.tasks.images.encoded import open_encoded
from unsmooth.training.tasks.images.reading import Centres, loader_of, some_centres, workers_for
from unsmooth.training.tasks.images.recipe import ImageRecipe
from unsmooth.training.tasks.images.scores import Scores, evaluate, normalised
from unsmooth.training.tasks.images.stream import Tally, evaluate_stream, image_input
from unsmooth.training.tasks.images.subset import check_encoded, check_images, same_classes

NAME = "regenerated CIFAR-100-C"
DEFINITION = "After each block: Frobenius HFC/LFC, signed cosine over pairs, effective rank from σ; all tokens"


@dataclass(frozen=True)
class Evaluation:
    """What a trained model gets right on its test images, how it smooths, and perhaps how it does on corrupted ones."""

    model: str
    date: str
    commit: str
    hardware: str
    torch: str
    command: str
    run: str | None
    variant: str | None
    seed: int | None
    fraction: float | None
    precision: str
    clean: Scores
    smoothing: dict[str, list[float]] = field(repr=False)
    smoothing_definition: str = field(repr=False)
    corruptions: dict[str, Any] | None = field(default=None, repr=False)

    def to_json(self) -> dict[str, Any]:
        """Plain values; `load` reads them again."""
        found = dataclasses.asdict(self)
        return found if self.corruptions is not None else {k: v for k, v in found.items() if k != "corruptions"}

    def save(self, path: str | Path) -> Path:
        """Write it as one JSON file."""
        return write_result(path, json.dumps(self.to_json(), indent=1) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Evaluation:
        """What `save` wrote."""
        return cls.from_json(read_object(path, "an evaluation that `unsmooth evaluate --out` wrote"), str(path))

    @classmethod
    def from_json(cls, found: dict[str, Any], source: str) -> Evaluation:
        """What `to_json` gave; fields that older versions lack are None."""
        values: dict[str, Any] = {item.name: found.get(item.name) for item in dataclasses.fields(cls)}
        try:
            return cls(**{**values, "model": found["model"], "clean": Scores(**found["clean"])})
        except (KeyError, TypeError) as error:
            why = f"{type(error).__name__}: {error}"
            raise CheckpointError(f"{source} is no evaluation that `unsmooth evaluate --out` wrote ({why})") from error


def evaluate_trained(
    reference: str,
    data: str | Path,
    *,
    corruptions: bool = False,
    samples: int | None = None,
    batch_size: int = 500,
    seed: int = 0,
    metric_images: int = 256,
    device: torch.device | str = "cpu",
    precision: str = "float32",
    progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Scores on the test split of `data`; `samples` takes so many of them, always the same.

    `precision` "bf16" classifies by autocast on CUDA, as training did; a CPU computes in float32 in any case.
    """
    if precision not in PRECISIONS:
        raise OptionError.unknown("precision", precision, PRECISIONS)
    for name, count in (("samples", samples), ("batch_size", batch_size), ("metric_images", metric_images)):
        if count is not None and count < 1:
            raise OptionError(f"{name} must be at least 1, got {count}")
    folder = trained_folder(reference)
    if not read_config(folder).get("recipe"):
        raise CheckpointError(f"{folder / CONFIG} is not complete: it has no recipe; train again")
    model, config = load_trained(reference)
    recipe, model = ImageRecipe.from_dict(config["recipe"]), model.to(device)
    names = config.get("class_names") or ()
    if recipe.stream:
        if corruptions:
            raise OptionError("corruptions are those of CIFAR-100-C, for images of 32 px: leave --corruptions out")
        clean, shown = _on_stream(model, data, recipe, names, samples, metric_images, precision)
    else:
        test = _test_images(data, recipe, names, samples)
        clean = evaluate(model, test.pixels, test.labels, recipe, batch_size, precision)
        shown = test.pixels[:metric_images]
    options: dict[str, Any] = {"corruptions": corruptions, "samples": samples, "batch_size": batch_size, "seed": seed}
    options |= {"metric_images": metric_images, "precision": precision}
    return Evaluation(
        model=shown_name(reference),
        **circumstances(device),
        command=command_of_evaluation(reference, **options),
        run=config.get("run"),
        variant=config.get("variant"),
        seed=config.get("seed"),
        fraction=config.get("fraction"),
        precision=precision if torch.device(device).type == "cuda" else "float32",
        clean=clean,
        smoothing=smoothing_by_depth(model, normalised(shown, recipe, model)),
        smoothing_definition=f"{DEFINITION}; mean over {len(shown)} images",
        corruptions=corrupted_accuracy(model, test, recipe, batch_size, seed, precision, progress)
        if corruptions
        else None,
    )


def _test_images(data: str | Path, recipe: ImageRecipe, names: Sequence[str], samples: int | None) -> ImageSet:
    test = load_images(data, "test")
    same_classes(names, test.class_names, ("the model", "the data"))
    check_images(test, recipe, "test", remedy=False)
    return test if samples is None else test.take(torch.arange(min(samples, len(test))))


def _on_stream(
    model: nn.Module, data: str | Path, recipe: ImageRecipe, names: Sequence[str], samples: int | None, shown: int,
    precision: str,
) -> tuple[Scores, Tensor]:  # fmt: skip
    """Scores on images that stay on disk, and the first of them."""
    test, spec = open_encoded(data, "test"), image_input(recipe)
    same_classes(names, test.class_names, ("the model", "the data"))
    check_encoded(test.labels, test.class_names, recipe, "test", remedy=False)
    centres, device = Centres(test, spec, samples), next(model.parameters()).device
    loader = loader_of(centres, range(len(centres)), workers_for(device))
    tally = Tally(recipe.unreadable == "refuse")
    return evaluate_stream(model, loader, recipe, tally, precision), some_centres(test, spec, shown)


def shown_name(reference: str) -> str:
    """`zoo:NAME`, or a folder's name: results travel, and paths mean nothing elsewhere."""
    return reference if reference.startswith("zoo:") else Path(reference).resolve().name


def command_of_evaluation(reference: str, **options: Any) -> str:
    """The command line that repeats an evaluation: options that differ from the defaults, no path of this machine.

    >>> command_of_evaluation("runs/plain", corruptions=True, samples=None, precision="bf16")
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
    recipe: ImageRecipe,
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
