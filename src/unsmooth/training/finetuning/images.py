"""Fine-tuning an image model with a linear classifier, everything on the device."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor, nn
from torch.nn import functional as F

from unsmooth.errors import DataError
from unsmooth.sources import LoadedModel
from unsmooth.training.engine.precision import precision_on
from unsmooth.training.finetuning.job import Job
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


class ImageJob(Job):
    """One data set and fraction of it."""

    unit = "accuracy"

    def __init__(
        self, loaded: LoadedModel, data: str | Path, settings: ImageSettings, device: torch.device,
        splits: tuple[ImageSet, ImageSet] | None = None,
    ) -> None:  # fmt: skip
        settings = replace(settings, precision=precision_on(device, settings.precision))
        self.loaded, self.device, self.precision = loaded, device, settings.precision
        self.batch_size = settings.batch_size
        self.settings = {name: str(v) for name, v in {**asdict(settings), "size": loaded.images.size}.items()}
        self.rates = {name: getattr(settings, name) for name in ("lr", "head_lr", "weight_decay")}
        train, test = splits or (load_images(data, "train"), load_images(data, "test"))
        self.train = keep_fraction(train, settings.fraction).to(device)
        count = len(test) if settings.test_images is None else min(settings.test_images, len(test))
        self.test = test.take(torch.arange(count)).to(device)
        self.classes = int(train.labels.max()) + 1
        self.name = f"{Path(data).name}-{100 * settings.fraction:g}pct"
        if len(self.train) < settings.batch_size:
            raise DataError(
                f"{len(self.train)} training images are fewer than a batch of {settings.batch_size}: take smaller "
                "batches or a larger fraction"
            )
        self.steps = len(self.train) // settings.batch_size * settings.epochs
        self._mean, self._std = (torch.tensor(v, device=device).view(3, 1, 1)
                                 for v in (loaded.images.mean, loaded.images.std))  # fmt: skip

    def build(self, seed: int) -> nn.Module:
        """The model with a linear classifier that starts at 0."""
        encoder = copy.deepcopy(getattr(self.loaded.model, "base_model", self.loaded.model)).to(self.device).float()
        with torch.no_grad():
            out = encoder(self.look()[:1])
        return Classifier(encoder, (out if isinstance(out, Tensor) else out.last_hidden_state).shape[-1], self.classes)

    def look(self) -> Float[Tensor, "image channel height width"]:
        """The first test images."""
        return self._ready(self.test.pixels[:64])

    def stream(self, seed: int) -> Iterator[tuple[Tensor, ...]]:
        """Augmented images in a new order every epoch; the last, smaller batch of an epoch is left out."""
        rng, count = torch.Generator().manual_seed(seed), len(self.train) // self.batch_size
        while True:
            order = torch.randperm(len(self.train), generator=rng)[: count * self.batch_size].view(count, -1)
            views = draw_views(order.numel(), self.train.pixels.shape[-2], rng).view(count, -1, 3)
            # an epoch at a time: every copy from the host waits for the device
            for rows, view in zip(order.to(self.device), views.to(self.device), strict=True):
                yield self._ready(augment(self.train.pixels[rows], view)), self.train.labels[rows]

    def score(self, model: nn.Module) -> dict[str, float]:
        """Accuracy and loss on the test images."""
        right = loss = torch.zeros((), device=self.device)
        for start in range(0, len(self.test), 256):
            pixels, labels = (t[start : start + 256] for t in (self.test.pixels, self.test.labels))
            with self.autocast():
                logits = model(self._ready(pixels)).float()
            right = right + (logits.argmax(1) == labels).sum()
            loss = loss + F.cross_entropy(logits, labels, reduction="sum")
        return {"score": float(right) / len(self.test), "loss": float(loss) / len(self.test)}

    def _ready(self, pixels: UInt8[Tensor, "image channel height width"]) -> Float[Tensor, "image channel new new"]:
        """As the model was trained to see images: its size, mean and deviation."""
        size = self.loaded.images.size
        x = F.interpolate(pixels.float() / 255, size=(size, size), mode="bicubic", antialias=True)
        return (x.clamp(0, 1) - self._mean) / self._std


def draw_views(count: int, height: int, rng: torch.Generator) -> Int64[Tensor, "image 3"]:
    """For each image the top and left of its cut, in pixels of the image with its margin, and whether it is flipped."""
    cuts = torch.randint(2 * _margin(height) + 1, (count, 2), generator=rng)
    return torch.cat([cuts, torch.randint(2, (count, 1), generator=rng)], 1)


def augment(
    pixels: UInt8[Tensor, "image channel height width"], views: Int64[Tensor, "image 3"]
) -> UInt8[Tensor, "image channel height width"]:
    """Each image flipped or not, and cut out of itself with a dark margin."""
    count, _, height, wide = pixels.shape
    pad = _margin(height)
    padded = F.pad(pixels, (pad, pad, pad, pad))
    top, left, flip = views.split(1, 1)
    rows = top + torch.arange(height, device=pixels.device)
    along = torch.arange(wide, device=pixels.device)
    columns = left + torch.where(flip.bool(), wide - 1 - along, along)
    image = torch.arange(count, device=pixels.device)[:, None, None]
    return padded.permute(0, 2, 3, 1)[image, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def _margin(height: int) -> int:
    return max(1, round(PADDING * height))
