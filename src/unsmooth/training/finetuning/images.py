"""Fine-tuning an image model with a linear classifier, everything on the device."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.nn import functional as F

from unsmooth.control.effect import effect
from unsmooth.errors import DataError
from unsmooth.sources import LoadedModel
from unsmooth.training.engine.step import autocast
from unsmooth.training.finetuning.arms import Arm, fit
from unsmooth.training.tasks.images.data import ImageSet, load_images
from unsmooth.training.tasks.images.subset import keep_fraction

PADDING = 1 / 8  # of an image's side, for random crops


@dataclass(frozen=True)
class ImageSettings:
    """How images are classified."""

    fraction: float = 1.0
    epochs: int = 5
    batch_size: int = 128
    lr: float = 2e-5
    head_lr: float = 1e-3
    weight_decay: float = 0.05
    precision: str = "bf16"
    test_images: int | None = None


class Classifier(nn.Module):
    """The model's pooled output, and a linear map of it."""

    def __init__(self, encoder: nn.Module, width: int, classes: int) -> None:
        super().__init__()
        self.encoder, self.head = encoder, nn.Linear(width, classes)
        # at 0: the first gradients that reach pretrained weights are not those of a random head
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, x: Float[Tensor, "image channel height width"]) -> Float[Tensor, "image label"]:
        """Logits."""
        out = self.encoder(x)
        hidden: Tensor = out if isinstance(out, Tensor) else out.last_hidden_state
        logits: Tensor = self.head(hidden[:, 0] if hidden.ndim == 3 else hidden)
        return logits


class ImageJob:
    """One data set and fraction of it: `run(arm, seed)` fine-tunes and scores."""

    unit = "accuracy"

    def __init__(
        self, loaded: LoadedModel, data: str | Path, settings: ImageSettings, device: torch.device,
        splits: tuple[ImageSet, ImageSet] | None = None,
    ) -> None:  # fmt: skip
        self.loaded, self.settings, self.device = loaded, settings, device
        train, test = splits or (load_images(data, "train"), load_images(data, "test"))
        self.train = keep_fraction(train, settings.fraction).to(device)
        count = len(test) if settings.test_images is None else min(settings.test_images, len(test))
        self.test = test.take(torch.arange(count)).to(device)
        self.classes = int(train.labels.max()) + 1
        self.name = f"{Path(data).name}-{settings.fraction:.0%}".replace("%", "pct")
        if len(self.train) < settings.batch_size:
            raise DataError(f"{len(self.train)} training images are fewer than a batch of {settings.batch_size}")

    def run(self, arm: Arm, seed: int) -> dict[str, Any]:
        """Train to the end; accuracy and loss on the test images, and smoothness of the last layer before and after."""
        torch.manual_seed(seed)
        encoder = copy.deepcopy(self.loaded.model).to(self.device).float().requires_grad_(True)
        look = [self._ready(self.test.pixels[:64])]
        with torch.no_grad():
            width = Classifier(encoder, 1, 1).encoder(look[0][:1])
        size = (width if isinstance(width, Tensor) else width.last_hidden_state).shape[-1]
        before = effect(encoder, look, None)
        arm.apply(encoder, seed)
        model = Classifier(encoder, size, self.classes).to(self.device)
        per_epoch = len(self.train) // self.settings.batch_size
        stream = self._stream(seed, per_epoch)

        def loss(step: int) -> Tensor:
            pixels, labels = next(stream)
            with autocast(self.device, self.settings.precision):
                logits = model(pixels)
            return F.cross_entropy(logits.float(), labels)

        fitted = fit(
            model, encoder, arm, loss, per_epoch * self.settings.epochs, lr=self.settings.lr,
            head_lr=self.settings.head_lr, weight_decay=self.settings.weight_decay,
        )  # fmt: skip
        scores = self._score(model)
        after = effect(encoder, look, None)
        smooth = {f"{k}_before": v for k, v in before.items()} | {f"{k}_after": v for k, v in after.items()}
        return {**scores, "train_loss": fitted, **smooth}

    def _stream(self, seed: int, per_epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        rng = torch.Generator().manual_seed(seed)
        while True:
            order = torch.randperm(len(self.train), generator=rng)[: per_epoch * self.settings.batch_size]
            for rows in order.view(per_epoch, -1).to(self.device):
                yield self._ready(augment(self.train.pixels[rows], rng)), self.train.labels[rows]

    def _ready(self, pixels: UInt8[Tensor, "image channel height width"]) -> Float[Tensor, "image channel new new"]:
        """As the model was trained to see images: its size, mean and deviation."""
        spec = self.loaded.images
        x = F.interpolate(pixels.float() / 255, size=(spec.size, spec.size), mode="bicubic", antialias=True)
        mean, std = (torch.tensor(v, device=x.device).view(3, 1, 1) for v in (spec.mean, spec.std))
        return (x.clamp(0, 1) - mean) / std

    @torch.no_grad()
    def _score(self, model: nn.Module) -> dict[str, float]:
        right, loss = 0, 0.0
        for start in range(0, len(self.test), 256):
            pixels, labels = (t[start : start + 256] for t in (self.test.pixels, self.test.labels))
            with autocast(self.device, self.settings.precision):
                logits = model(self._ready(pixels)).float()
            right += int((logits.argmax(1) == labels).sum())
            loss += float(F.cross_entropy(logits, labels, reduction="sum"))
        return {"score": right / len(self.test), "loss": loss / len(self.test)}


def augment(
    pixels: UInt8[Tensor, "image channel height width"], rng: torch.Generator
) -> UInt8[Tensor, "image channel height width"]:
    """Each image flipped or not, and cut at random out of itself with a dark margin."""
    count, _, height, wide = pixels.shape
    pad = max(1, round(PADDING * height))
    padded = F.pad(pixels, (pad, pad, pad, pad))
    top, left = (torch.randint(2 * pad + 1, (count, 1), generator=rng).to(pixels.device) for _ in range(2))
    flip = (torch.rand(count, 1, generator=rng) < 0.5).to(pixels.device)
    rows = top + torch.arange(height, device=pixels.device)
    along = torch.arange(wide, device=pixels.device)
    columns = left + torch.where(flip, wide - 1 - along, along)
    image = torch.arange(count, device=pixels.device)[:, None, None]
    return padded.permute(0, 2, 3, 1)[image, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
