"""A labelled image set in memory: uint8 pixels and labels, read from disk and checked."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor

from unsmooth.errors import DataError, MissingExtraError
from unsmooth.sources.paths import IMAGES
from unsmooth.training.tasks.images.class_folders import class_folders, labelled
from unsmooth.training.tasks.images.decode import decode_all, read_image
from unsmooth.training.tasks.images.layouts import (
    class_names,
    data_folder,
    hub_rows,
    image_and_label,
    parquet_errors,
    parquet_files,
    same_names,
    whole_numbers,
)

EXPECTED = (
    "HF-layout parquet (train-*.parquet, test- or validation-*.parquet), torchvision's cifar-100-python folder, "
    f"or train/ and test/ folders with one folder per class (files {', '.join(sorted(IMAGES))})"
)


@dataclass(frozen=True)
class ImageSet:
    """Images of one split in canonical order: by the hash of their pixels, whatever files they came from."""

    pixels: UInt8[Tensor, "image channel height width"]
    labels: Int64[Tensor, image]
    class_names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, index: Int64[Tensor, chosen]) -> ImageSet:
        """These images only, in this order."""
        return ImageSet(self.pixels[index], self.labels[index], self.class_names)

    def to(self, device: torch.device) -> ImageSet:
        """The same on a device."""
        return ImageSet(self.pixels.to(device), self.labels.to(device), self.class_names)

    def channel_means(self) -> tuple[float, ...]:
        """Mean of each channel in [0, 1]."""
        return tuple(self._image_means().mean(0).tolist())

    def standard_errors(self) -> tuple[float, ...]:
        """By how much each of these means varies with the choice of so many images."""
        return tuple((self._image_means().std(0, correction=0) / len(self) ** 0.5).tolist())

    def _image_means(self) -> Float[Tensor, "image channel"]:
        return torch.cat([part.float().mean((2, 3)) / 255 for part in self.pixels.split(4096)])


class KeptImages(str):
    """The path of a data set that runs read one after the other: each split is read once."""

    splits: dict[str, ImageSet]

    def __new__(cls, path: str | Path) -> Self:
        """Nothing is read yet."""
        found = super().__new__(cls, path)
        found.splits = {}
        return found

    def load(self, split: str) -> ImageSet:
        """The split, read when it is first asked for."""
        if split not in self.splits:
            self.splits[split] = load_images(str(self), split)
        return self.splits[split]


def load_images(path: str | Path, split: str) -> ImageSet:
    """Read one split (`train` or `test`) from any of the layouts we know, or `hub:NAME` through `datasets`."""
    if isinstance(path, KeptImages):
        return path.load(split)
    if str(path).startswith("hub:"):
        return _canonical(_from_hub(str(path).removeprefix("hub:"), split), f"{split} of {path}")
    path = data_folder(path, EXPECTED)
    parquet = parquet_files(path, _folder_names(split))
    pickled = next(iter(sorted(path.glob(f"**/cifar-100-python/{split}"))), None)
    folder = next((path / name for name in _folder_names(split) if labelled(path / name)), None)
    if parquet:
        found = _from_parquet(parquet)
    elif pickled is not None or (path / split).is_file():
        found = _from_torchvision(pickled or path / split)
    elif folder is not None:
        found = _from_folders(folder)
    else:
        raise DataError(f"no {split} split at {path}: expected {EXPECTED}")
    return _canonical(found, f"{split} at {path}")


def _folder_names(split: str) -> tuple[str, ...]:
    return (split, "val", "valid", "validation") if split == "test" else (split,)


def _canonical(images: ImageSet, where: str) -> ImageSet:
    """Sort by a hash of the pixels, so that neither shards nor their order change a run."""
    if not len(images):
        raise DataError(f"{where} holds no images: expected {EXPECTED}")
    pixels = images.pixels.numpy()
    keys = [
        hashlib.blake2b(p.tobytes() + bytes([int(y) % 256]), digest_size=8).digest()
        for p, y in zip(pixels, images.labels.tolist(), strict=True)
    ]
    return images.take(torch.tensor(sorted(range(len(keys)), key=keys.__getitem__)))


def _stack(arrays: list[Any], labels: list[Any], names: tuple[str, ...]) -> ImageSet:
    numbers = whole_numbers(labels)
    sizes = {a.shape for a in arrays}
    if len(sizes) > 1:
        raise DataError(f"all images of a split must have one size; found {sorted(sizes)[:4]}: resize them first")
    pixels = torch.from_numpy(np.stack(arrays)) if arrays else torch.zeros(0, 3, 1, 1, dtype=torch.uint8)
    return ImageSet(pixels, numbers, names)


def _from_parquet(files: list[Path]) -> ImageSet:
    arrays: list[Any] = []
    labels: list[int] = []
    names: tuple[str, ...] = ()
    for file in files:
        with parquet_errors(file):
            import pyarrow.parquet as pq

            table = pq.read_table(file)
        image, label = image_and_label(table.column_names, file)
        names = same_names(names, class_names(table.schema.metadata or {}, label), file)
        values = table.column(image).to_pylist()
        blobs = [value.get("bytes") if isinstance(value, dict) else value for value in values]
        arrays += decode_all(blobs, [f"{file}, row {row}" for row in range(len(blobs))])
        labels += table.column(label).to_pylist()
    return _stack(arrays, labels, names)


def _from_hub(name: str, split: str) -> ImageSet:
    """Such a data set in memory, for example uoft-cs/cifar100."""
    found, image, label = hub_rows(name, _folder_names(split))
    arrays = [np.asarray(row).transpose(2, 0, 1) for row in found[image]]
    return _stack(arrays, list(found[label]), tuple(getattr(found.features[label], "names", ())))


def _from_torchvision(file: Path) -> ImageSet:
    """torchvision keeps CIFAR-100 as pickles; its own loader checks their md5 before unpickling."""
    home = file.parent.absolute()
    try:
        from torchvision.datasets import CIFAR100
    except ImportError as error:
        raise MissingExtraError.needed("torchvision", "train", "reading torchvision's CIFAR-100") from error

    class Here(CIFAR100):
        base_folder = home.name  # cifar-100-python, or whatever the user calls it

    try:
        data = Here(str(home.parent), train=file.name == "train", download=False)
    except RuntimeError as error:
        raise DataError(f"{file} is not torchvision's CIFAR-100 ({error}): download it again") from error
    pixels = torch.from_numpy(np.ascontiguousarray(data.data.transpose(0, 3, 1, 2)))
    return ImageSet(pixels, torch.tensor(data.targets), tuple(data.classes))


def _from_folders(folder: Path) -> ImageSet:
    classes = class_folders(folder)
    arrays: list[Any] = []
    labels: list[int] = []
    for number, files in enumerate(classes.values()):
        found = [folder / file for file in files]
        arrays += decode_all([read_image(file) for file in found], list(map(str, found)))
        labels += [number] * len(found)
    return _stack(arrays, labels, tuple(classes))
