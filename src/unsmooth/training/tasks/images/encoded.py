"""A labelled image set that stays on disk: which images there are, and the bytes of some of them.

Class folders and tar shards give any image at once; parquet gives row groups, so its images come in `blocks`. Nothing
is decoded here. Objects of these classes go to worker processes: they hold paths and numbers, no open files.
"""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from unsmooth.errors import DataError
from unsmooth.training.tasks.images.class_folders import class_folders, labelled, subfolders
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
from unsmooth.training.tasks.images.tar_index import tar_index

EXPECTED = (
    "train/ and val/ with one folder per class, parquet (train-*.parquet, validation-*.parquet), "
    "tar shards (*train*.tar, *val*.tar: KEY.jpg and KEY.cls), or hub:NAME"
)
HELD_OUT = ("val", "valid", "validation", "test")  # `test` last: ImageNet's has no labels


class Encoded(ABC):
    """Images of one split, numbered in the order of their names."""

    labels: Int64[Tensor, image]
    class_names: tuple[str, ...] = ()
    blocks: tuple[int, ...] = ()  # sizes of what is read at once; empty: any image alone

    def __len__(self) -> int:
        return len(self.labels)

    @abstractmethod
    def name(self, index: int) -> str:
        """Where an image lies, for messages."""

    @abstractmethod
    def read(self, index: Sequence[int]) -> list[Any]:
        """The bytes of these images; whatever is there, if it is no image."""

    @abstractmethod
    def listing(self) -> Iterator[str]:
        """What a hash of the set is made of, beside the labels: names, and sizes where they cost nothing."""

    def key(self) -> str:
        """A short hash of names and labels, not of pixels: a run that goes on with other data is another run."""
        digest = hashlib.blake2b(self.labels.numpy().tobytes(), digest_size=8)
        for line in self.listing():
            digest.update(line.encode("utf-8", "surrogateescape") + b"\n")
        return digest.hexdigest()


class Files(Encoded):
    """One folder per class."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        found = class_folders(folder)
        self.class_names = tuple(found)
        counts = torch.tensor([len(names) for names in found.values()])
        self.labels = torch.repeat_interleave(torch.arange(len(found)), counts)
        self.names = [name for names in found.values() for name in names]  # with their folders

    def _path(self, index: int) -> Path:
        return self.folder / self.names[index]

    def name(self, index: int) -> str:
        """The file's path."""
        return str(self._path(index))

    def read(self, index: Sequence[int]) -> list[Any]:
        """Each file as it is; None for one that cannot be read."""
        return [_bytes_of(self._path(i)) for i in index]

    def listing(self) -> Iterator[str]:
        """Names of classes and files: the sizes of a million files would take minutes on a network drive."""
        yield from self.class_names
        yield from (name.rpartition("/")[2] for name in self.names)


class Parquet(Encoded):
    """Row groups of shards in the layout of Hugging Face."""

    def __init__(self, files: list[Path]) -> None:
        self.files, self.groups, sizes, labels = files, [], [], []
        for number, file in enumerate(files):
            with parquet_errors(file):
                import pyarrow.parquet as pq

                shard = pq.ParquetFile(file)
                self.column, label = image_and_label(shard.schema_arrow.names, file)
                names = class_names(shard.schema_arrow.metadata or {}, label)
                self.class_names = same_names(self.class_names, names, file)
                sizes += [shard.metadata.row_group(g).num_rows for g in range(shard.num_row_groups)]
                self.groups += [(number, g) for g in range(shard.num_row_groups)]
                labels += shard.read([label]).column(label).to_pylist()
        self.labels, self.blocks = whole_numbers(labels), tuple(sizes)
        self.starts = np.cumsum([0, *sizes])

    def _place(self, index: int) -> tuple[int, int]:
        group = int(np.searchsorted(self.starts, index, side="right")) - 1
        return group, index - int(self.starts[group])

    def name(self, index: int) -> str:
        """The shard, and the row in it."""
        group, row = self._place(index)
        number = self.groups[group][0]
        first = next(g for g, (file, _) in enumerate(self.groups) if file == number)
        return f"{self.files[number]}, row {row + int(self.starts[group] - self.starts[first])}"

    def read(self, index: Sequence[int]) -> list[Any]:
        """Each row group once, whatever the order of the images."""
        import pyarrow.parquet as pq

        places = [self._place(i) for i in index]
        found: list[Any] = [None] * len(places)
        for group in sorted({group for group, _ in places}):
            number, inside = self.groups[group]
            wanted = [at for at, place in enumerate(places) if place[0] == group]
            with parquet_errors(self.files[number]):
                table = pq.ParquetFile(self.files[number]).read_row_group(inside, [self.column])
            rows = table.column(self.column).take([places[at][1] for at in wanted]).to_pylist()
            for at, value in zip(wanted, rows, strict=True):
                found[at] = value.get("bytes") if isinstance(value, dict) else value
        return found

    def listing(self) -> Iterator[str]:
        """Names and sizes of the shards."""
        return (f"{file.name} {file.stat().st_size}" for file in self.files)


class Tars(Encoded):
    """Shards in the layout of webdataset: KEY.jpg beside KEY.cls (a number) or KEY.json (with a `label`)."""

    def __init__(self, files: list[Path]) -> None:
        self.files = files
        table = tar_index(files)
        self.place, self.labels = table[:, :3], torch.from_numpy(np.ascontiguousarray(table[:, 3]))

    def name(self, index: int) -> str:
        """The shard, and the image's number in it."""
        number = int(self.place[index, 0])
        first = int(np.searchsorted(self.place[:, 0], number))
        return f"{self.files[number]}, image {index - first}"

    def read(self, index: Sequence[int]) -> list[Any]:
        """A piece of a shard each."""
        return [self._piece(*map(int, self.place[i])) for i in index]

    def _piece(self, number: int, offset: int, size: int) -> bytes | None:
        try:
            with self.files[number].open("rb") as file:
                file.seek(offset)
                return file.read(size)
        except OSError:
            return None

    def listing(self) -> Iterator[str]:
        """Names and sizes of the shards."""
        return (f"{file.name} {file.stat().st_size}" for file in self.files)


class Hub(Encoded):
    """A data set of the Hugging Face hub, which `datasets` keeps on disk and maps into memory."""

    def __init__(self, name: str, split: str) -> None:
        names = HELD_OUT if split == "test" else (split,)
        self.rows, self.column, label = hub_rows(name, names, decode=False)
        self.reference = f"hub:{name}"
        self.class_names = tuple(getattr(self.rows.features[label], "names", ()))
        self.labels = whole_numbers(list(self.rows[label]))

    def name(self, index: int) -> str:
        """The data set, and the row in it."""
        return f"{self.reference}, row {index}"

    def read(self, index: Sequence[int]) -> list[Any]:
        """Bytes, or the file that a row names."""
        values = self.rows[list(index)][self.column]
        return [v["bytes"] if v.get("bytes") is not None else _bytes_of(Path(v.get("path") or "")) for v in values]

    def listing(self) -> Iterator[str]:
        """What `datasets` calls the data."""
        yield f"{self.reference} {getattr(self.rows, '_fingerprint', '')}"


def open_encoded(path: str | Path, split: str) -> Encoded:
    """One split (`train` or `test`, which is also called val and validation) of any of the layouts we know."""
    if str(path).startswith("hub:"):
        return Hub(str(path).removeprefix("hub:"), split)
    path = data_folder(path, EXPECTED)
    names = HELD_OUT if split == "test" else (split,)
    for name in names:
        # first: torchvision keeps ImageNet's own archives beside its folders, and a million files are not searched
        if subfolders(path / name) and labelled(path / name):
            return _whole(Files(path / name), split, path)
        if files := parquet_files(path, (name,)):
            return _whole(Parquet(files), split, path)
        if files := _tars(path, name):
            return _whole(Tars(files), split, path)
        if labelled(path / name):
            return _whole(Files(path / name), split, path)
    called = "validation" if split == "test" else split
    raise DataError(f"no {called} split at {path}: expected {EXPECTED}")


def _whole(found: Encoded, split: str, path: Path) -> Encoded:
    if not len(found):
        raise DataError(f"{split} at {path} holds no images: expected {EXPECTED}")
    return found


def _bytes_of(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _tars(path: Path, name: str) -> list[Path]:
    """By a word of the shard's name (train-0001, imagenet_train.0001, train0001), or by that of its folder."""
    found = sorted(path.glob("**/*.tar"))
    return [p for p in found if name in re.split("[^a-z]+", p.stem.lower()) or p.parent.name == name]
