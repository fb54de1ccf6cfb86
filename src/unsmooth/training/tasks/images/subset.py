"""Class-balanced, nested subsets, and the checks that say the data is what the recipe means."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from jaxtyping import Int64
from torch import Tensor

from unsmooth.errors import DataError, OptionError
from unsmooth.prose import some
from unsmooth.training.tasks.images.data import ImageSet, load_images
from unsmooth.training.tasks.images.recipe import ImageRecipe

MEAN_TOLERANCE = 0.02  # a wrong channel order or another data set moves a mean by more


def keep_fraction(images: ImageSet, fraction: float, subset: int = 0) -> ImageSet:
    """The same share of every class; the subset of a smaller fraction lies inside that of a larger one.

    Images are in the order of their pixels' hash, so a subset depends on nothing but the images. Subset 0 takes the
    first ones; any other number is the seed of an order of each class's images, and their first ones are taken.
    """
    if not 0 < fraction <= 1:
        raise OptionError(f"fraction must lie in (0, 1], got {fraction}")
    return images if fraction == 1 else images.take(members_of(images.labels, fraction, subset))


def members_of(labels: Int64[Tensor, image], fraction: float, subset: int = 0) -> Int64[Tensor, kept]:
    """Which images such a share holds, in their order."""
    kept = []
    for label in labels.unique().tolist():
        members = (labels == label).nonzero()[:, 0]
        if subset:
            members = members[_shuffled(len(members), f"subset {subset}, class {label}")]
        kept.append(members[: max(1, round(fraction * len(members)))])
    return torch.cat(kept).sort().values


def _shuffled(count: int, seed: str) -> list[int]:
    """0 … count − 1 in an order that is the same everywhere: Python promises its `random()`, no library its shuffle."""
    draw = random.Random(seed)
    keys = [draw.random() for _ in range(count)]
    return sorted(range(count), key=keys.__getitem__)


Refusal = Callable[[str, object, str], DataError]  # what was expected, what was found, what to do


def _refusal(remedy: bool) -> Refusal:
    def refuse(expected: str, found: object, advice: str) -> DataError:
        hint = advice if remedy else "evaluate on the data that the model was trained on"
        return DataError(f"expected {expected}, found {found}: {hint}")

    return refuse


def _check_count(count: int, recipe: ImageRecipe, split: str, refuse: Refusal) -> None:
    wanted = recipe.train_images if split == "train" else recipe.test_images
    if wanted and count != wanted:
        advice = f"is a shard missing? (--set {split}_images=0 takes any number)"
        raise refuse(f"{wanted} {split} images", count, advice)


def check_images(images: ImageSet, recipe: ImageRecipe, split: str, remedy: bool = True) -> None:
    """Counts, classes, size and channel means against the recipe, with an error that names the difference.

    `remedy` says how to change the recipe; a trained model's cannot be changed any more.
    """

    refuse = _refusal(remedy)
    _check_count(len(images), recipe, split, refuse)
    shape, size = tuple(images.pixels.shape[1:]), recipe.image_size
    if shape != (3, size, size):
        raise refuse(
            f"{split} images of 3×{size}×{size}",
            "×".join(map(str, shape)),
            "resize them, or --set image_size=… (squares, a multiple of patch_size)",
        )
    _check_labels(images.labels, images.class_names, recipe, split, refuse)
    _check_means(images, recipe, split, refuse)


def check_encoded(
    labels: Int64[Tensor, image], names: tuple[str, ...], recipe: ImageRecipe, split: str, remedy: bool = True
) -> None:
    """The same for images that stay on disk, as far as it can be known without decoding them."""
    refuse = _refusal(remedy)
    _check_count(len(labels), recipe, split, refuse)
    _check_labels(labels, names, recipe, split, refuse)


def _check_labels(
    labels: Int64[Tensor, image], names: tuple[str, ...], recipe: ImageRecipe, split: str, refuse: Refusal
) -> None:
    found = labels.unique().tolist()
    if found[0] < 0 or found[-1] >= recipe.classes:
        advice = "number the classes from 0" + (f", or --set classes={found[-1] + 1}" if found[0] == 0 else "")
        raise refuse(f"{split} labels in 0…{recipe.classes - 1}", f"{found[0]}…{found[-1]}", advice)
    if len(found) != recipe.classes:
        missing = sorted(set(range(recipe.classes)) - set(found))
        named = [f"{y} ({names[y]})" if y < len(names) else str(y) for y in missing]
        advice = f"no image has the label {some(named)}"
        advice += f"; --set classes={len(found)}?" if missing[0] > found[-1] > 0 else ""  # one class is no task
        raise refuse(f"{recipe.classes} classes in {split}", len(found), advice)


def _check_means(images: ImageSet, recipe: ImageRecipe, split: str, refuse: Refusal) -> None:
    """The means of few images vary with their choice: three standard errors are no difference."""
    means, errors = images.channel_means(), images.standard_errors()
    for mean, error, expected in zip(means, errors, recipe.mean, strict=True):
        if abs(mean - expected) > MEAN_TOLERANCE + 3 * error:
            shown = ",".join(f"{m:.4f}" for m in means)
            advice = f"other data, or channels in another order? (--set mean={shown} accepts them)"
            raise refuse(f"channel means of {split} near {','.join(map(str, recipe.mean))}", shown, advice)


def load_splits(
    path: str | Path, recipe: ImageRecipe, fraction: float = 1.0, subset: int = 0
) -> tuple[ImageSet, ImageSet]:
    """Train (its class-balanced fraction) and test, both checked."""
    train, test = load_images(path, "train"), load_images(path, "test")
    same_classes(train.class_names, test.class_names, ("train", "test"))  # first: a class that one lacks has a name
    for images, split in ((train, "train"), (test, "test")):
        check_images(images, recipe, split)
    return keep_fraction(train, fraction, subset), test


def same_classes(names: Sequence[str], others: Sequence[str], both: tuple[str, str]) -> None:
    """Refuse labels of `both` that would not mean the same; where either side has no names, nothing is known."""
    if not (names and others) or tuple(names) == tuple(others):
        return
    pairs = ((both[0], set(names) - set(others)), (both[1], set(others) - set(names)))
    strange = [f"only {whose} has {some(sorted(found))}" for whose, found in pairs if found]
    differ = f"name different classes ({'; '.join(strange)})" if strange else "number their classes differently"
    raise DataError(
        f"{both[0]} and {both[1]} {differ}, so their labels would not mean the same: expected in both, in this order, "
        f"{some(names)}"
    )


def data_hash(*splits: ImageSet) -> str:
    """A short hash of all images and labels: a run that goes on with other data is another run."""
    digest = hashlib.blake2b(digest_size=8)
    for images in splits:
        digest.update(images.pixels.cpu().numpy().tobytes())
        digest.update(images.labels.cpu().numpy().tobytes())
    return digest.hexdigest()
