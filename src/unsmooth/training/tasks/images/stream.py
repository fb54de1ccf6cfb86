"""Image classification on data larger than memory: pictures are read and cropped by worker processes while it trains.

A step's images and draws follow from the seed and the step's number alone. So a run goes on anywhere, several processes
see what one would, and which worker is the first to be ready changes nothing.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor, nn

from unsmooth.errors import DataError, OptionError
from unsmooth.metrics.processes import everybodys
from unsmooth.models import view
from unsmooth.sources.loaded import ImageInput
from unsmooth.training.engine.observe import observe
from unsmooth.training.engine.run import Run
from unsmooth.training.engine.sharding import in_order
from unsmooth.training.engine.task import Batch, Rows
from unsmooth.training.tasks.images.augment import Colours
from unsmooth.training.tasks.images.augment.batch import colour_and_mix
from unsmooth.training.tasks.images.encoded import Encoded, open_encoded
from unsmooth.training.tasks.images.model import build_model
from unsmooth.training.tasks.images.reading import (
    EVALUATED,
    Centres,
    Item,
    Steps,
    Unreadable,
    loader_of,
    some_centres,
    workers_for,
)
from unsmooth.training.tasks.images.recipe import ImageRecipe
from unsmooth.training.tasks.images.scores import Scores, logits_of, normalised, scores_of
from unsmooth.training.tasks.images.subset import check_encoded, members_of, same_classes
from unsmooth.training.tasks.images.task import ImageTask, epochs_of

LAST = 1 << 40  # steps


class Tally:
    """Which images could not be read; each is named once, or, if that is what the recipe says, ends the run."""

    def __init__(self, refuse: bool) -> None:
        self.refuse, self.names = refuse, set[str]()

    def add(self, unreadable: Unreadable) -> None:
        """What a worker found."""
        for name, why in unreadable:
            if self.refuse:
                advice = "remove it, repair it, or --set unreadable=skip"
                raise DataError(f"{name} is not a readable image ({why}): {advice}")
            if name not in self.names:
                self.names.add(name)
                warnings.warn(f"{name} is not a readable image ({why}): it is left out", stacklevel=4)

    def share(self) -> None:
        """What other processes found counts too; each has named its own."""
        self.names = set().union(*everybodys(self.names))


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
        self.shown = some_centres(test, self.spec, recipe.metric_images)

    def stream(self, step: int) -> Iterator[Rows]:
        """Chunks of cropped images and draws; they are gathered where a GPU can fetch them while it computes."""
        loader = loader_of(self.steps, range(step, LAST), self.workers)
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

    def prepare(self, rows: Rows) -> Batch:
        """Mirror, RandAugment, normalise, erase, mix: the crop was made where the image was decoded."""
        x = rows["pixels"].to(torch.int32)
        x = torch.where(rows["flip"][:, None, None, None], x.flip(-1), x)
        return colour_and_mix(x, rows["labels"], rows, self.recipe, self.colours)

    def evaluate(self, model: nn.Module, final: bool = False) -> dict[str, Any]:
        """Accuracy, loss and calibration on the validation set; images that cannot be read do not count.

        Each process takes its share, and learns which images the others could not read.
        """
        loader = loader_of(self.centres, range(self.rank, len(self.centres), self.world), self.workers)
        precision = "float32" if final else None
        scores = evaluate_stream(model, loader, self.recipe, self.tally, precision, self.world > 1)
        self.tally.share()
        return scores.as_dict()

    def state(self) -> dict[str, Any]:
        """Which images could not be read so far: they stay counted, and are not named again."""
        return {"unreadable": sorted(self.tally.names)} if self.tally.names else {}

    def restore(self, state: dict[str, Any]) -> None:
        """Those of the checkpoint."""
        self.tally.names |= set(state.get("unreadable", ()))

    def observe(self, model: nn.Module) -> dict[str, Any]:
        """Smoothing of some validation images, the spectrum of H, and how many images could not be read."""
        seen = {"unreadable": len(self.tally.names)} if self.tally.names else {}
        return observe(model, normalised(self.shown, self.recipe, model)) | seen


def evaluate_stream(
    model: nn.Module, loader: Iterable[Item], recipe: ImageRecipe, tally: Tally, precision: str | None,
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


def image_input(recipe: ImageRecipe) -> ImageInput:
    """How the recipe's models see an image that is not augmented."""
    return ImageInput(size=recipe.image_size, mean=recipe.mean, std=recipe.std, crop=recipe.test_crop)


def open_stream(
    recipe: ImageRecipe, run: Run, data: str | Path, device: torch.device, rank: int, world: int
) -> StreamTask:
    """List and check the images, choose the run's share of them, build its model."""
    images, test = open_encoded(data, "train"), open_encoded(data, "test")
    same_classes(images.class_names, test.class_names, ("train", "validation"))
    for found, split in ((images, "train"), (test, "test")):
        check_encoded(found.labels, found.class_names, recipe, split)
    kept = None if run.fraction == 1 else members_of(images.labels, run.fraction, run.subset)
    model = run.control.apply(build_model(recipe, run.seed), run.std, run.seed).to(device)
    view(model)  # `observe` needs it: better refused now than after the first steps
    return StreamTask(
        recipe, model, images, test, kept=kept, seed=run.seed, epochs=epochs_of(run, recipe), rank=rank, world=world
    )
