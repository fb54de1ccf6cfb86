"""Image classification on a data set that lies on the device; all draws of an epoch are made at once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Float32
from torch import Tensor, nn

from unsmooth.errors import OptionError
from unsmooth.models import view
from unsmooth.training.engine.observe import observe
from unsmooth.training.engine.run import Run
from unsmooth.training.engine.schedule import warmup_cosine
from unsmooth.training.engine.sharding import in_order
from unsmooth.training.engine.step import Speed
from unsmooth.training.engine.task import Batch, FastPath, Rows, Task
from unsmooth.training.fast import FastViT
from unsmooth.training.tasks.images.augment import Colours, augment, draw_epoch
from unsmooth.training.tasks.images.data import ImageSet
from unsmooth.training.tasks.images.model import build_model, save_model
from unsmooth.training.tasks.images.recipe import ImageRecipe
from unsmooth.training.tasks.images.scores import logits_of, normalised, scores_of
from unsmooth.training.tasks.images.subset import data_hash, load_splits


class ImageTask(Task):
    """Images and labels on the device, augmented there; an epoch is one chunk."""

    unit = "epoch"
    shardable = evaluates_together = True
    recipe: ImageRecipe
    class_names: tuple[str, ...]

    def __init__(
        self,
        recipe: ImageRecipe,
        model: nn.Module,
        images: ImageSet,
        test: ImageSet | None = None,
        *,
        seed: int = 0,
        epochs: int | None = None,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        if len(images) < recipe.batch_size:
            raise OptionError(f"{len(images)} images do not fill one batch of {recipe.batch_size}: --set batch_size=…")
        device, test = next(model.parameters()).device, test or images
        self.data_hash = data_hash(images, test)
        self.recipe, self.model, self.images, self.test = recipe, model, images.to(device), test.to(device)
        self.seed, self.rank, self.world = seed, rank, world
        self.colours = Colours.of(recipe, device)
        self.chunk = self.per_unit = len(images) // recipe.batch_size
        self.every, self.total = self.chunk * recipe.every, self.chunk * (epochs or recipe.epochs)
        self.optimisation, self.class_names = recipe.optimisation, test.class_names

    def stream(self, step: int) -> Iterator[Rows]:
        """Epoch after epoch: which images, and every draw of their augmentation."""
        for epoch in itertools.count(step // self.chunk):
            plan = draw_epoch(len(self.images), self.recipe, self.seed, epoch)
            rows = (plan.shard(self.rank, self.world) if self.world > 1 else plan).rows()
            done, step = step % self.chunk, 0
            yield {name: t[done:] for name, t in rows.items()}

    @torch.no_grad()
    def replace(self, finished: Task) -> bool:
        """If it has a model of the same shape and as many images."""
        if type(self) is not ImageTask or type(finished) is not ImageTask or self.recipe != finished.recipe:
            return False
        mine, theirs = self.model.state_dict(), finished.model.state_dict()
        pairs = [(mine[name], theirs[name]) for name in mine if name in theirs]
        pairs += [(getattr(self.images, name), getattr(finished.images, name)) for name in ("pixels", "labels")]
        if mine.keys() != theirs.keys() or any(new.shape != old.shape for new, old in pairs):
            return False
        for new, old in pairs:
            old.copy_(new)
        self.model, self.images = finished.model, finished.images
        return True

    def prepare(self, rows: Rows) -> Batch:
        """Crop, flip, RandAugment, normalise, mix."""
        return augment(self.images.pixels, self.images.labels, rows, self.recipe, self.colours)

    def loss(self, *batch: Tensor) -> Float[Tensor, ""]:
        """Cross-entropy with soft targets."""
        x, target = batch
        logits = self.model(x)
        return -(target * logits.float().log_softmax(-1)).sum(-1).mean()

    def rates(self, total: int) -> Float32[Tensor, step]:
        """Warm-up for the recipe's share of all steps, then half a cosine."""
        return learning_rates(self.recipe, total)

    def evaluate(self, model: nn.Module, final: bool = False) -> dict[str, Any]:
        """Accuracy, loss and calibration on the test set, of which each process takes its share."""
        mine = torch.arange(self.rank, len(self.test), self.world, device=self.test.labels.device)
        pixels = self.test.pixels if self.world == 1 else self.test.pixels[mine]
        logits = logits_of(model, pixels, self.recipe, precision="float32" if final else None)
        if self.world > 1:
            (logits,) = in_order(mine, logits)
        return scores_of(logits, self.test.labels).as_dict()

    def observe(self, model: nn.Module) -> dict[str, Any]:
        """Smoothing of the first test images, and the spectrum of H."""
        return observe(model, normalised(self.test.pixels[: self.recipe.metric_images], self.recipe, model))

    def save(self, model: nn.Module, folder: Path, about: dict[str, Any]) -> str:
        """A plain timm model with its preprocessing and class names."""
        classes = {"class_names": list(self.class_names)} if self.class_names else {}
        return save_model(model, folder, self.recipe, {**about, **classes})

    def fast_path(self, speed: Speed, half: bool) -> FastPath:
        """Kernels and short cuts for timm's plain ViT."""
        return FastViT(self.model, speed, half)


def open_task(
    recipe: ImageRecipe, run: Run, data: str | Path, device: torch.device, rank: int, world: int
) -> ImageTask:
    """Read and check the images of the run's share, and build its model."""
    images, test = load_splits(data, recipe, run.fraction, run.subset)
    model = run.control.apply(build_model(recipe, run.seed), run.std, run.seed).to(device)
    view(model)  # `observe` needs it: better refused now than after the first epochs
    return ImageTask(recipe, model, images, test, seed=run.seed, epochs=epochs_of(run, recipe), rank=rank, world=world)


def epochs_of(run: Run, recipe: ImageRecipe) -> int:
    """Epochs to train; more passes over fewer images when the number of steps is kept."""
    return round(recipe.epochs / run.fraction) if run.same_steps else recipe.epochs


def learning_rates(recipe: ImageRecipe, total: int) -> Float32[Tensor, step]:
    """The rate of each of `total` steps, which warm up for the recipe's share of them."""
    return warmup_cosine(recipe.lr, total, round(total * recipe.warmup_epochs / recipe.epochs))
