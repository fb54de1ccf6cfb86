"""Where labelled images lie: the user's folder, shards of parquet, data sets of the hub; their columns and classes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor

from unsmooth.errors import DataError, MissingExtraError
from unsmooth.training.tasks.images.class_folders import readable

LABEL_COLUMNS = ("fine_label", "label", "labels", "class", "cls")  # the last as `datasets` gives webdataset's files
IMAGE_COLUMNS = ("img", "image", "jpg", "jpeg", "png", "webp")


def data_folder(path: str | Path, expected: str) -> Path:
    """The folder that a user named, or an error that says what should be there."""
    if not str(path):  # a shell variable that is not set; as a path it would be the current folder
        raise DataError(f"the path of the data is empty: expected {expected}")
    path = Path(path).expanduser()
    if not path.exists():
        raise DataError(f"no data at {path}: expected {expected}")
    if path.is_file():
        raise DataError(f"{path} is a file: expected the folder that holds it, with {expected}")
    return path


def parquet_files(path: Path, names: tuple[str, ...]) -> list[Path]:
    """The shards of one split, in the folder or somewhere below it; of several names the first that is there."""
    patterns = [f"**/{name}{end}.parquet" for name in names for end in ("-*", "")]
    files = next((found for pattern in patterns if (found := sorted(path.glob(pattern)))), [])
    folders = sorted({str(file.parent.relative_to(path)) for file in files})
    if len(folders) > 1:
        raise DataError(f"parquet of several data sets below {path}: {', '.join(folders)}; name one of them")
    return files


@contextmanager
def parquet_errors(file: Path) -> Iterator[None]:
    """What pyarrow says of a damaged file, in our words."""
    try:
        import pyarrow as pa
    except ImportError as error:
        raise MissingExtraError.needed("pyarrow", "train", "reading parquet") from error
    try:
        with readable(file):
            yield
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{file} is truncated or not parquet ({error}): download or write it again") from error


def image_and_label(columns: list[str], file: Path) -> tuple[str, str]:
    """The columns that hold images and labels."""
    return _pick(columns, IMAGE_COLUMNS, file), _pick(columns, LABEL_COLUMNS, file)


def _pick(columns: list[str], wanted: tuple[str, ...], file: Path) -> str:
    for name in wanted:
        if name in columns:
            return name
    raise DataError(f"{file} has no column {' or '.join(wanted)}: its columns are {', '.join(columns)}; rename one")


def class_names(metadata: dict[bytes, bytes], label: str) -> tuple[str, ...]:
    """What `datasets` calls the classes."""
    try:
        return tuple(json.loads(metadata[b"huggingface"])["info"]["features"][label]["names"])
    except (KeyError, TypeError, ValueError):  # not there, or not what `datasets` writes: the names only help
        return ()


def same_names(names: tuple[str, ...], others: tuple[str, ...], file: Path) -> tuple[str, ...]:
    """The names of a split's classes, with those of another of its files; DataError where labels differ in meaning."""
    if names and others and names != others:
        raise DataError(f"{file} names or numbers its classes otherwise than the files before it: write them alike")
    return names or others


def whole_numbers(labels: list[Any]) -> Int64[Tensor, image]:
    """Labels as a tensor."""
    if strange := [y for y in labels if not isinstance(y, int)]:
        raise DataError(f"labels must be whole numbers 0, 1, 2, …; found {strange[0]!r}: number the classes")
    return torch.tensor(labels, dtype=torch.int64)


def hub_rows(name: str, splits: tuple[str, ...], decode: bool = True) -> tuple[Any, str, str]:
    """A data set of the Hugging Face hub, of several splits the first that is there; its image and label columns."""
    if not name:
        raise DataError("hub: names no data set: expected one of the Hugging Face hub, as in hub:ILSVRC/imagenet-1k")
    try:
        import datasets
    except ImportError as error:
        raise MissingExtraError.needed("datasets", "data", "downloading data") from error
    errors: list[Exception] = []
    for split in splits:
        try:
            found = datasets.load_dataset(name, split=split)
            break
        except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
            errors.append(error)
    else:
        said = f"cannot load {splits[0]} of hub:{name} ({errors[0]}): check the name, or give a local path"
        raise DataError(said) from errors[0]
    image, label = image_and_label(found.column_names, Path(name))
    kind = datasets.Image(mode="RGB") if decode else datasets.Image(decode=False)
    return found.cast_column(image, kind), image, label
