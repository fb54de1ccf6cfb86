"""Class-balanced, nested subsets, and the checks that say the data is what the recipe means."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import torch

from unsmooth.errors import DataError, OptionError
from unsmooth.train.images import IMAGE_COLUMNS, LABEL_COLUMNS, ImageSet, _decode, load_images
from unsmooth.train.recipes import Recipe

MEAN_TOLERANCE = 0.02  # a wrong channel order or another data set moves a mean by more


def keep_fraction(images: ImageSet, fraction: float) -> ImageSet:
    """The same share of every class; the subset of a smaller fraction lies inside that of a larger one.

    Images are in the order of their pixels' hash, so a subset depends on nothing but the images.
    """
    if not 0 < fraction <= 1:
        raise OptionError(f"fraction must lie in (0, 1], got {fraction}")
    if fraction > images.fraction + 1e-9:
        raise DataError(f"the files hold {images.fraction:g} of the data set, fewer than the {fraction:g} asked for")
    share = fraction / images.fraction
    if share > 1 - 1e-9:
        return images
    kept = []
    for label in images.labels.unique().tolist():
        members = (images.labels == label).nonzero()[:, 0]
        kept.append(members[: max(1, round(share * len(members)))])
    chosen = images.take(torch.cat(kept).sort().values)
    return ImageSet(chosen.pixels, chosen.labels, chosen.class_names, fraction)


def check_images(images: ImageSet, recipe: Recipe, split: str, remedy: bool = True) -> None:
    """Counts, classes, size and channel means against the recipe, with an error that names the difference.

    `remedy` says how to change the recipe; a trained model's cannot be changed any more.
    """

    def refuse(expected: str, found: object, advice: str) -> DataError:
        hint = advice if remedy else "evaluate on the data that the model was trained on"
        return DataError(f"expected {expected}, found {found}: {hint}")

    wanted = recipe.train_images if split == "train" else recipe.test_images
    wanted = round(wanted * images.fraction)
    if wanted and len(images) != wanted:
        advice = f"is a shard missing? (--set {split}_images=0 takes any number)"
        raise refuse(f"{wanted} {split} images", len(images), advice)
    shape, size = tuple(images.pixels.shape[1:]), recipe.image_size
    if shape != (3, size, size):
        raise refuse(
            f"{split} images of 3×{size}×{size}",
            "×".join(map(str, shape)),
            "resize them, or --set image_size=… (squares, a multiple of patch_size)",
        )
    found = images.labels.unique().tolist()
    if found[0] < 0 or found[-1] >= recipe.classes:
        advice = "number the classes from 0" + (f", or --set classes={found[-1] + 1}" if found[0] == 0 else "")
        raise refuse(f"{split} labels in 0…{recipe.classes - 1}", f"{found[0]}…{found[-1]}", advice)
    if len(found) != recipe.classes:
        missing = sorted(set(range(recipe.classes)) - set(found))
        named = [f"{y} ({images.class_names[y]})" if y < len(images.class_names) else str(y) for y in missing]
        advice = f"no image has the label {', '.join(named[:4])}{', …' if len(named) > 4 else ''}"
        advice += f"; --set classes={len(found)}?" if missing[0] > found[-1] > 0 else ""  # one class is no task
        raise refuse(f"{recipe.classes} classes in {split}", len(found), advice)
    _check_means(images, recipe, split, refuse)


def _check_means(images: ImageSet, recipe: Recipe, split: str, refuse: Callable[[str, object, str], DataError]) -> None:
    """The means of few images vary with their choice: three standard errors are no difference."""
    means, errors = images.channel_means(), images.standard_errors()
    for mean, error, expected in zip(means, errors, recipe.mean, strict=True):
        if abs(mean - expected) > MEAN_TOLERANCE + 3 * error:
            shown = ",".join(f"{m:.4f}" for m in means)
            advice = f"other data, or channels in another order? (--set mean={shown} accepts them)"
            raise refuse(f"channel means of {split} near {','.join(map(str, recipe.mean))}", shown, advice)


def load_splits(path: str | Path, recipe: Recipe, fraction: float = 1.0) -> tuple[ImageSet, ImageSet]:
    """Train (its class-balanced fraction) and test, both checked."""
    train, test = load_images(path, "train"), load_images(path, "test")
    for images, split in ((train, "train"), (test, "test")):
        check_images(images, recipe, split)
    if train.class_names and test.class_names and train.class_names != test.class_names:
        strange = sorted(set(train.class_names) ^ set(test.class_names))
        raise DataError(
            f"train and test name different classes ({', '.join(strange[:4])}): their labels would not mean the same"
        )
    return keep_fraction(train, fraction), test


def data_hash(*splits: ImageSet) -> str:
    """A short hash of all images and labels: a run that goes on with other data is another run."""
    digest = hashlib.blake2b(digest_size=8)
    for images in splits:
        digest.update(images.pixels.numpy().tobytes())
        digest.update(images.labels.numpy().tobytes())
    return digest.hexdigest()


def write_subset(source: str | Path, target: str | Path, fraction: float) -> int:
    """Write the fraction's rows of HF-layout training parquet to one file that loads as the same subset."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = sorted(Path(source).glob("train-*.parquet"))
    if not files:
        raise DataError(f"no train-*.parquet in {source}")
    table = pa.concat_tables([pq.read_table(file) for file in files])
    image = next(c for c in IMAGE_COLUMNS if c in table.column_names)
    label = next(c for c in LABEL_COLUMNS if c in table.column_names)
    subset = keep_fraction(load_images(source, "train"), fraction)
    # CIFAR-100 holds a few images twice: count them, so that exactly as many rows are written as were chosen
    wanted = Counter((p.numpy().tobytes(), y) for p, y in zip(subset.pixels, subset.labels.tolist(), strict=True))
    rows = []
    for row, (value, y) in enumerate(
        zip(table.column(image).to_pylist(), table.column(label).to_pylist(), strict=True)
    ):
        key = (_decode(value["bytes"], f"row {row}").tobytes(), y)
        if wanted[key] > 0:
            wanted[key] -= 1
            rows.append(row)
    metadata = {**(table.schema.metadata or {}), b"unsmooth": json.dumps({"fraction": fraction}).encode()}
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table.take(rows).replace_schema_metadata(metadata), target)
    return len(rows)
