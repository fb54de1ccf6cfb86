"""What worker processes do: the images of a step, or of an evaluation, are read, decoded and cropped."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from unsmooth.errors import DataError
from unsmooth.sources.loaded import ImageInput
from unsmooth.training.engine.order import Order
from unsmooth.training.tasks.images.augment.plan import draw_steps
from unsmooth.training.tasks.images.crops import centre_crop, random_crop
from unsmooth.training.tasks.images.encoded import Encoded
from unsmooth.training.tasks.images.recipe import ImageRecipe

EVALUATED = 250  # images at once
TRIES = 16  # unreadable images in a row that are no accident any more
AHEAD = 2  # batches that each worker decodes before they are asked for
Item = dict[str, Any]
Unreadable = list[tuple[str, str]]  # where the image lies, and what is wrong with it


class Steps(Dataset[Item]):
    """What one process needs for step after step: its part of the cropped images, and all draws."""

    def __init__(
        self, images: Encoded, kept: Int64[Tensor, kept], recipe: ImageRecipe, seed: int, rank: int, world: int
    ) -> None:
        self.images, self.kept, self.recipe, self.seed = images, kept, recipe, seed
        self.rank, self.world = rank, world
        starts = torch.tensor([0, *itertools.accumulate(images.blocks)])
        counts = torch.searchsorted(kept, starts[1:]) - torch.searchsorted(kept, starts[:-1])
        self.order = Order(len(kept), seed, tuple(n for n in counts.tolist() if n))

    def __getitem__(self, step: int) -> Item:
        size, repeats = self.recipe.batch_size, self.recipe.repeats
        position = torch.arange(step * size, (step + 1) * size)
        first = step * size // repeats
        chosen = self.order.take(first, int(position[-1]) // repeats + 1 - first)[position // repeats - first]
        rng = torch.Generator().manual_seed(1_000_003 * self.seed + step)
        plan = draw_steps(position[None], self.recipe, rng).shard(self.rank, self.world).batch(0)
        mine = plan.pop("index")
        pixels, labels, unreadable = self._read(chosen[mine - step * size].tolist(), mine.tolist())
        return {"pixels": pixels, "labels": labels, "unreadable": unreadable, **plan}

    def _read(self, chosen: Sequence[int], positions: Sequence[int]) -> tuple[Tensor, Tensor, Unreadable]:
        size, least = self.recipe.image_size, self.recipe.crop_area
        index: list[int] = self.kept[list(chosen)].tolist()
        pixels, labels = np.empty((len(index), 3, size, size), dtype=np.uint8), self.images.labels[index]
        unreadable: Unreadable = []
        for at, (blob, position) in enumerate(zip(self.images.read(index), positions, strict=True)):
            number = index[at]
            for tried in itertools.count(1):
                try:
                    pixels[at] = random_crop(blob, size, least, 1_000_003 * self.seed + position)
                    break
                except DataError as error:  # the next of the run's images in its place, as timm does
                    if tried == TRIES:
                        why = f"{TRIES} images in a row cannot be read, {self.images.name(number)} among them ({error})"
                        raise DataError(f"{why}: is the data still there?") from error
                    unreadable.append((self.images.name(number), str(error)))
                    number = int(self.kept[(chosen[at] + tried) % len(self.kept)])
                    blob, labels[at] = self.images.read([number])[0], self.images.labels[number]
        return torch.from_numpy(pixels), labels, unreadable


class Centres(Dataset[Item]):
    """Images as they are evaluated, some at a time; `limit`: so many of them, drawn once and for all.

    The first ones would be of the first classes: folders and many shards are sorted by class.
    """

    def __init__(self, images: Encoded, spec: ImageInput, limit: int | None = None) -> None:
        self.images, self.spec, self.index = images, spec, torch.arange(len(images))
        if limit is not None and limit < len(images):
            self.index = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))[:limit]

    def __len__(self) -> int:
        return -(-len(self.index) // EVALUATED)

    def __getitem__(self, number: int) -> Item:
        index = self.index[number * EVALUATED : (number + 1) * EVALUATED].tolist()
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


def some_centres(images: Encoded, spec: ImageInput, count: int) -> UInt8[Tensor, "image channel size size"]:
    """So many images of a set, always the same, in memory."""
    found = Centres(images, spec, count)
    return torch.cat([found[number]["pixels"] for number in range(len(found))]) if count else torch.empty(0)


class Guarded(Dataset[Item | DataError]):
    """The same items, an error among them: torch would put the worker's traceback into its message."""

    def __init__(self, what: Dataset[Item]) -> None:
        self.what = what

    def __getitem__(self, number: int) -> Item | DataError:
        try:
            return self.what[number]
        except DataError as error:
            return error


def loader_of(what: Dataset[Item], numbers: range, workers: int) -> Iterator[Item]:
    """These items in their order; nothing is drawn from the global generator."""
    ahead = AHEAD if workers else None
    rng, items = torch.Generator(), Guarded(what)
    for item in DataLoader(
        items, batch_size=None, sampler=numbers, num_workers=workers, prefetch_factor=ahead, generator=rng
    ):
        if isinstance(item, DataError):
            raise item
        yield item


def workers_for(device: torch.device) -> int:
    """All cores of this process, shared among those of its machine; none beside a CPU, which they would slow down."""
    if device.type == "cpu":
        return 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // int(os.environ.get("LOCAL_WORLD_SIZE") or 1))
