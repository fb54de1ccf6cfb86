"""One folder per class, numbered by their names: which files are its images."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from unsmooth.errors import DataError
from unsmooth.sources.paths import IMAGES


def class_folders(folder: Path) -> dict[str, list[str]]:
    """The names of each class's images, both in their order; a class without any is refused.

    It would move the numbers of all classes that follow. A split without any image is told by whoever asks.
    """
    found = {path.name: sorted(_image_names(path)) for path in subfolders(folder)}
    if not found:
        raise DataError(f"{folder} has no class folders: expected one folder of images per class")
    empty = [name for name, images in found.items() if not images]
    if empty and len(empty) < len(found):
        several = f"{len(empty)} class folders hold" if len(empty) > 1 else "a class folder holds"
        named = ", ".join(empty[:4]) + (", …" if len(empty) > 4 else "")
        raise DataError(f"{several} no images ({named} in {folder}): fill it, or remove it if it is no class")
    return found


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
