"""What a model gets right, and how well it knows: accuracy, loss, calibration error."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import torch
from jaxtyping import Bool, Float, Int64, UInt8
from torch import Tensor, nn

from unsmooth.training.engine.precision import autocast
from unsmooth.training.tasks.images.augment import Colours, normalise
from unsmooth.training.tasks.images.recipe import ImageRecipe

BINS = 15


@dataclass(frozen=True)
class Scores:
    """Shares in [0, 1]; `calibration_error` is the expected one over 15 equal bins of confidence."""

    accuracy: float
    loss: float
    calibration_error: float
    images: int

    def as_dict(self) -> dict[str, float | int]:
        """Plain values, for records."""
        return asdict(self)


def normalised(
    pixels: UInt8[Tensor, "image channel height width"], recipe: ImageRecipe, model: nn.Module, batch_size: int = 256
) -> Iterator[Float[Tensor, "batch channel height width"]]:
    """Batches for a model, on the device it lives on."""
    device = next(model.parameters()).device
    colours = Colours.of(recipe, device)
    for chunk in pixels.split(batch_size):
        if len(chunk):
            yield normalise(chunk.to(device), colours)


@torch.no_grad()
def logits_of(
    model: nn.Module,
    pixels: UInt8[Tensor, "image channel height width"],
    recipe: ImageRecipe,
    batch_size: int = 1000,
    precision: str | None = None,
) -> Float[Tensor, "image classes"]:
    """Class scores in evaluation mode; the model's mode is restored."""
    kind, training = precision or recipe.precision, model.training
    model.eval()
    try:
        parts = []
        for x in normalised(pixels, recipe, model, batch_size):
            with autocast(x.device, kind):
                parts.append(model(x).float())
        return torch.cat(parts)
    finally:
        model.train(training)


def evaluate(
    model: nn.Module,
    pixels: UInt8[Tensor, "image channel height width"],
    labels: Int64[Tensor, image],
    recipe: ImageRecipe,
    batch_size: int = 1000,
    precision: str | None = None,
) -> Scores:
    """Accuracy, cross-entropy and expected calibration error on these images."""
    return scores_of(logits_of(model, pixels, recipe, batch_size, precision), labels)


def scores_of(logits: Float[Tensor, "image classes"], labels: Int64[Tensor, image]) -> Scores:
    """The same from class scores."""
    labels = labels.to(logits.device)
    confidence, guess = logits.softmax(-1).max(-1)
    right = guess == labels
    return Scores(
        accuracy=float(right.double().mean()),
        loss=float(nn.functional.cross_entropy(logits, labels)),
        calibration_error=calibration_error(confidence, right),
        images=len(labels),
    )


def calibration_error(confidence: Float[Tensor, image], right: Bool[Tensor, image]) -> float:
    """Mean gap between confidence and accuracy, over equal bins of confidence, weighted by their size.

    >>> round(calibration_error(torch.tensor([0.9, 0.9]), torch.tensor([True, False])), 6)
    0.4
    """
    confidence, hit = confidence.double(), right.double()
    which = (confidence * BINS).ceil().long().clamp(1, BINS) - 1
    gaps = torch.zeros(BINS, dtype=torch.float64, device=confidence.device).index_add(0, which, confidence - hit)
    return round(float(gaps.abs().sum()) / max(1, len(hit)), 12)
