"""Image classification on data larger than memory: pictures are read and cropped by worker processes while it trains.

A step's images and draws follow from the seed and the step's number alone. So a run goes on anywhere, several processes
see what one would, and which worker is the first to be ready changes nothing.
"""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from unsmooth.errors import DataError, OptionError
from unsmooth.models import view
from unsmooth.sources.loaded import ImageInput
from unsmooth.training.engine.observe import observe
from unsmooth.training.engine.order import Order
from unsmooth.training.engine.run import Run
from unsmooth.training.engine.sharding import in_order
from unsmooth.training.engine.task import Batch, Rows
from unsmooth.training.tasks.images.augment import Colours
from unsmooth.training.tasks.images.augment.batch import colour_and_mix
from unsmooth.training.tasks.images.augment.plan import draw_steps
from unsmooth.training.tasks.images.crops import centre_crop, random_crop
from unsmooth.training.tasks.images.encoded import Encoded, open_encoded
from unsmooth.training.tasks.images.model import build_model
from unsmooth.training.tasks.images.recipe import ImageRecipe
from unsmooth.training.tasks.images.scores import Scores, logits_of, normalised, scores_of
from unsmooth.training.tasks.images.subset import check_encoded, members_of, same_classes
from unsmooth.training.tasks.images.task import ImageTask, epochs_of

EVALUATED = 250  # images at once
LAST = 1 << 40  # steps
TRIES = 16  # unreadable images in a row that are no accident any more
AHEAD = 2  # batches that each worker decodes before they are asked for
Unreadable = list[tuple[str, str]]  # where the image lies, and what is wrong with it


class Steps(Dataset[dict[str, Any]]):
    """What one process needs for step after step: its part of the cropped images, and all draws."""

    def __init__(
        self, images: Encoded, kept: Int64[Tensor, kept], recipe: ImageRecipe, seed: int, rank: int, world: int
    ) -> None:
        self.images, self.kept, self.recipe, self.seed = images, kept, recipe, seed
        self.rank, self.world = rank, world
        starts = torch.tensor([0, *itertools.accumulate(images.blocks)])
        counts = torch.searchsorted(kept, starts[1:]) - torch.searchsorted(kept, starts[:-1])
        self.order = Order(len(kept), seed, tuple(n for n in counts.tolist() if n))

    def __getitem__(self, step: int) -> dict[str, Any]:
        size, repeats = self.recipe.batch_size, self.recipe.repeats
        position = torch.arange(step * size, (step + 1) * size)
        first = step * size // repeats
        chosen = self.order.take(first, int(position[-1]) // repeats + 1 - first)[position // repeats - first]
        rng = torch.Generator().manual_seed(1_000_003 * self.seed + step)
        plan = draw_steps(position[None], self.recipe, rng).shard(self.rank, self.world).batch(0)
        mine = plan.pop("index")
        index = self.kept[chosen[mine - step * size]].tolist()
        pixels, labels, unreadable = self._read(index, mine.tolist())
        return {"pixels": pixels, "labels": labels, "unreadable": unreadable, **plan}

    def _read(self, index: Sequence[int], positions: Sequence[int]) -> tuple[Tensor, Tensor, Unreadable]:
        size, least = self.recipe.image_size, self.recipe.crop_area
        pixels, labels = np.empty((len(index), 3, size, size), dtype=np.uint8), self.images.labels[index]
        unreadable: Unreadable = []
        for at, (blob, position) in enumerate(zip(self.images.read(index), positions, strict=True)):
            number = index[at]
            for tried in itertools.count(1):
                try:
                    pixels[at] = random_crop(blob, size, least, 1_000_003 * self.seed + position)
                    break
                except DataError as error:  # the next image in its place, as timm does
                    if tried == TRIES:
                        why = f"{TRIES} images in a row cannot be read, {self.images.name(number)} among them ({error})"
                        raise DataError(f"{why}: is the data still there?") from error
                    unreadable.append((self.images.name(number), str(error)))
                    number = (number + 1) % len(self.images)
                    blob, labels[at] = self.images.read([number])[0], self.images.labels[number]
        return torch.from_numpy(pixels), labels, unreadable


class Centres(Dataset[dict[str, Any]]):
    """Images as they are evaluated, some at a time."""

    def __init__(self, images: Encoded, spec: ImageInput, limit: int | None = None) -> None:
        self.images, self.spec, self.count = images, spec, min(limit or len(images), len(images))

    def __len__(self) -> int:
        return -(-self.count // EVALUATED)

    def __getitem__(self, number: int) -> dict[str, Any]:
        index = range(number * EVALUATED, min((number + 1) * EVALUATED, self.count))
        pixels, kept, unreadable = [], [], []
        for i, blob in zip(index, self.images.read(index), strict=True):
            try:
                pixels.append(centre_crop(blob, self.spec))
                kept.append(i)
            except DataError as error:
                unreadable.append((self.images.name(i), str(error)))
        found = np.stack(pixels) if pixels else np.empty((0, 3, self.spec.size, self.spec.size), dtype=np.uint8)
        where = torch.tensor(kept, dtype=torch.int64)
        rows = {"pixels": torch.from_numpy(found), "labels": self.images.labels[where], "index": where}
        return {**rows, "unreadable": unreadable}


def first_centres(images: Encoded, spec: ImageInput, count: int) -> UInt8[Tensor, "image channel size size"]:
    """The first images of a set, in memory."""
    found = Centres(images, spec, count)
    return torch.cat([found[number]["pixels"] for number in range(len(found))]) if count else torch.empty(0)


class Tally:
    """Which images could not be read; each is named once, or, if that is what the recipe says, ends the run."""

    def __init__(self, refuse: bool) -> None:
        self.refuse, self.names = refuse, set[str]()

    def add(self, unreadable: Unreadable) -> None:
        """What a worker found."""
        for name, why in unreadable:
            if self.refuse:
                raise DataError(f"{name} is not a readable image ({why}): remove it, repair it, or unreadable=skip")
            if name not in self.names:
                self.names.add(name)
                warnings.warn(f"{name} is not a readable image ({why}): it is left out", stacklevel=4)

    def share(self, world: int) -> None:
        """What other processes found counts too; each has named its own."""
        found: list[set[str]] = [set() for _ in range(world)]
        torch.distributed.all_gather_object(found, self.names)
        self.names = set().union(*found)


class StreamTask(ImageTask):
    """The image task on encoded images; its unit is the step, for a batch may reach from one pass into the next."""

    unit, per_unit = "step", 1

    def __init__(
        self,
        recipe: ImageRecipe,
        model: nn.Module,
        images: Encoded,
        test: Encoded,
        *,
        kept: Int64[Tensor, kept] | None = None,
        seed: int = 0,
        epochs: int | None = None,
        rank: int = 0,
        world: int = 1,
        workers: int | None = None,
    ) -> None:
        device = next(model.parameters()).device
        kept = torch.arange(len(images)) if kept is None else kept
        if len(kept) < recipe.batch_size:
            raise OptionError(f"{len(kept)} images do not fill one batch of {recipe.batch_size}: --set batch_size=…")
        self.recipe, self.model, self.colours = recipe, model, Colours.of(recipe, device)
        self.optimisation = recipe.optimisation
        self.data_hash = f"{images.key()}{test.key()}"
        self.class_names = test.class_names
        self.spec = image_input(recipe)
        self.rank, self.world = rank, world
        self.steps, self.centres = Steps(images, kept, recipe, seed, rank, world), Centres(test, self.spec)
        self.workers = workers_for(device) if workers is None else workers
        self.tally = Tally(recipe.unreadable == "refuse")
        self.chunk, a_pass = recipe.chunk, len(kept) / recipe.batch_size
        self.every = max(1, round(a_pass * recipe.every / self.chunk)) * self.chunk
        self.total = round(a_pass * (epochs or recipe.epochs))
        self.shown = first_centres(test, self.spec, recipe.metric_images)

    def stream(self, step: int) -> Iterator[Rows]:
        """Chunks of cropped images and draws; they are gathered where a GPU can fetch them while it computes."""
        loader = iter(self._loader(self.steps, range(step, LAST)))
        cuda = self.colours.mean.is_cuda
        kept: list[Tensor | None] = [None, None]  # one is filled while the other is copied to the device
        for turn in itertools.count():
            parts = list(itertools.islice(loader, self.chunk - step % self.chunk))
            for part in parts:
                self.tally.add(part.pop("unreadable"))
            step += len(parts)
            rows = {name: torch.stack([part[name] for part in parts]) for name in parts[0] if name != "pixels"}
            shape = (self.chunk, *parts[0]["pixels"].shape)
            if (buffer := kept[turn % 2]) is None:
                buffer = kept[turn % 2] = torch.empty(shape, dtype=torch.uint8, pin_memory=cuda)
            rows["pixels"] = torch.stack([part["pixels"] for part in parts], out=buffer[: len(parts)])
            yield rows

    def _loader(self, what: Dataset[dict[str, Any]], numbers: range) -> DataLoader[dict[str, Any]]:
        return loader_of(what, numbers, self.workers)

    def prepare(self, rows: Rows) -> Batch:
        """Mirror, RandAugment, normalise, erase, mix: the crop was made where the image was decoded."""
        x = rows["pixels"].to(torch.int32)
        x = torch.where(rows["flip"][:, None, None, None], x.flip(-1), x)
        return colour_and_mix(x, rows["labels"], rows, self.recipe, self.colours)

    def evaluate(self, model: nn.Module, final: bool = False) -> dict[str, Any]:
        """Accuracy, loss and calibration on the validation set; images that cannot be read do not count.

        Each process takes its share, and learns which images the others could not read.
        """
        loader = self._loader(self.centres, range(self.rank, len(self.centres), self.world))
        precision = "float32" if final else None
        scores = evaluate_stream(model, loader, self.recipe, self.tally, precision, self.world > 1)
        if self.world > 1:
            self.tally.share(self.world)
        return scores.as_dict()

    def observe(self, model: nn.Module) -> dict[str, Any]:
        """Smoothing of the first validation images, the spectrum of H, and how many images could not be read."""
        seen = {"unreadable": len(self.tally.names)} if self.tally.names else {}
        return observe(model, normalised(self.shown, self.recipe, model)) | seen


def loader_of(what: Dataset[dict[str, Any]], numbers: range, workers: int) -> DataLoader[dict[str, Any]]:
    """These items in their order; nothing is drawn from the global generator."""
    ahead = AHEAD if workers else None
    rng = torch.Generator()
    return DataLoader(what, batch_size=None, sampler=numbers, num_workers=workers, prefetch_factor=ahead, generator=rng)


def evaluate_stream(
    model: nn.Module, loader: DataLoader[dict[str, Any]], recipe: ImageRecipe, tally: Tally, precision: str | None,
    shared: bool = False,
) -> Scores:  # fmt: skip
    """The scores of `evaluate`, batch by batch; `shared` with other processes, whose loaders give the other batches."""
    device = next(model.parameters()).device
    logits = [torch.empty(0, recipe.classes, device=device)]
    labels, index = ([torch.empty(0, dtype=torch.int64)] for _ in range(2))
    for part in loader:
        tally.add(part["unreadable"])
        if len(part["labels"]):
            logits.append(logits_of(model, part["pixels"], recipe, EVALUATED, precision))
            labels.append(part["labels"])
            index.append(part["index"])
    scores, known = torch.cat(logits), torch.cat(labels).to(device)
    if shared:
        scores, known = in_order(torch.cat(index).to(device), scores, known)
    if not len(known):
        raise DataError("no image of the validation set can be read: mend it")
    return scores_of(scores, known)


def workers_for(device: torch.device) -> int:
    """All cores of this process, shared among those of its machine; none beside a CPU, which they would slow down."""
    if device.type == "cpu":
        return 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // int(os.environ.get("LOCAL_WORLD_SIZE") or 1))


def image_input(recipe: ImageRecipe) -> ImageInput:
    """How the recipe's models see an image that is not augmented."""
    return ImageInput(size=recipe.image_size, mean=recipe.mean, std=recipe.std, crop=recipe.test_crop)


def open_stream(
    recipe: ImageRecipe, run: Run, data: str | Path, device: torch.device, rank: int, world: int
) -> StreamTask:
    """List and check the images, choose the run's share of them, build its model."""
    images, test = open_encoded(data, "train"), open_encoded(data, "test")
    same_classes(images.class_names, test.class_names, "train and validation")
    for found, split in ((images, "train"), (test, "test")):
        check_encoded(found.labels, found.class_names, recipe, split)
    kept = None if run.fraction == 1 else members_of(images.labels, run.fraction, run.subset)
    model = run.control.apply(build_model(recipe, run.seed), run.std, run.seed).to(device)
    view(model)  # `observe` needs it: better refused now than after the first steps
    return StreamTask(
        recipe, model, images, test, kept=kept, seed=run.seed, epochs=epochs_of(run, recipe), rank=rank, world=world
    )
