"""One folder per class, numbered by their names, or Tiny-ImageNet as it is unzipped: which files are its images."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from unsmooth.errors import DataError
from unsmooth.prose import some
from unsmooth.sources.paths import IMAGES

INNER = "images"  # Tiny-ImageNet keeps images one folder further down
ANNOTATIONS = "val_annotations.txt"  # and tells the classes of its validation images in a file


def class_folders(folder: Path) -> dict[str, list[str]]:
    """The images of each class by their paths from the folder, both in order; a class without any is refused.

    It would move the numbers of all classes that follow. A split without any image is told by whoever asks.
    """
    if (folder / ANNOTATIONS).is_file():
        return _annotated(folder)
    found = {path.name: sorted(_images_of(path)) for path in subfolders(folder)}
    if not found:
        said = f"{folder} has no class folders, but one folder of images per class was expected"
        if flat := len(_image_names(folder)):
            said += f": move its {flat} images into such folders; torchvision.datasets.ImageNet does that for ImageNet"
        raise DataError(said)
    empty = [name for name, images in found.items() if not images]
    if empty and len(empty) < len(found):
        several = f"{len(empty)} class folders hold" if len(empty) > 1 else "a class folder holds"
        raise DataError(f"{several} no images ({some(empty)} in {folder}): fill it, or remove it if it is no class")
    return found


def labelled(folder: Path) -> bool:
    """Whether a split's folder is there and is not Tiny-ImageNet's test set, which has images and no classes."""
    return folder.is_dir() and (
        (folder / ANNOTATIONS).is_file() or [path.name for path in subfolders(folder)] != [INNER]
    )


def _annotated(folder: Path) -> dict[str, list[str]]:
    """By lines of a file's name and its class, with tabs between."""
    file = folder / ANNOTATIONS
    found: dict[str, list[str]] = {}
    with readable(file):
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines, 1):
        image, _, rest = line.partition("\t")
        name = rest.partition("\t")[0]
        if not (image and name):
            raise DataError(f"line {number} of {file} has no image and class with a tab between: unzip it again")
        found.setdefault(name, []).append(f"{INNER}/{image}")
    return {name: sorted(found[name]) for name in sorted(found)}


def _images_of(folder: Path) -> list[str]:
    """Those in a class's folder or, where there is none, in its folder `images`."""
    names = _image_names(folder)
    if not names and (folder / INNER).is_dir():
        return [f"{folder.name}/{INNER}/{name}" for name in _image_names(folder / INNER)]
    return [f"{folder.name}/{name}" for name in names]


def subfolders(folder: Path) -> list[Path]:
    """Those that systems do not hide, by name; none where there is no such folder."""
    if not folder.is_dir():
        return []
    with readable(folder):
        return sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))


def _image_names(folder: Path) -> list[str]:
    """A link that leads nowhere counts: an image that is passed over in silence would be a subset nobody asked for."""
    with readable(folder), os.scandir(folder) as entries:
        return [
            entry.name
            for entry in entries
            if not entry.name.startswith(".") and Path(entry.name).suffix.lower() in IMAGES and not entry.is_dir()
        ]


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """What a system says of somebody else's file or folder, in our words."""
    try:
        yield
    except PermissionError as error:
        raise DataError(f"{path} cannot be read (permission denied): make it readable for this user") from error
