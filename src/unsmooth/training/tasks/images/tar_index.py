"""Where the images of tar shards lie: shards in webdataset's layout are read once, and their index is kept."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from unsmooth.errors import DataError, OutputError
from unsmooth.sources.files import cache_folder, write_atomically
from unsmooth.sources.paths import IMAGES
from unsmooth.training.tasks.images.class_folders import readable


def tar_index(files: list[Path]) -> Int64[np.ndarray, "image 4"]:
    """Shard, offset, size and label of every image; kept in the cache, since reading all headers takes minutes."""
    stamp = "\n".join(f"{file.resolve()} {file.stat().st_size} {file.stat().st_mtime_ns}" for file in files)
    kept = cache_folder() / "tars" / f"{hashlib.blake2b(os.fsencode(stamp), digest_size=16).hexdigest()}.npy"
    if kept.is_file():
        try:
            table: Int64[np.ndarray, "image 4"] = np.load(kept, allow_pickle=False)
            return table
        except (OSError, ValueError):
            pass  # damaged: made again
    rows = [(number, *entry) for number, file in enumerate(files) for entry in _tar_images(file)]
    table = np.array(rows, dtype=np.int64).reshape(-1, 4)
    file = io.BytesIO()
    np.save(file, table)
    try:
        write_atomically(kept, file.getvalue())
    except OutputError as error:
        said = f"the index of {len(files)} tar shards is made anew at every start, for its cache does not keep it"
        warnings.warn(f"{said} ({error}; UNSMOOTH_CACHE names another folder)", stacklevel=2)
    return table


def _tar_images(file: Path) -> Iterator[tuple[int, int, int]]:
    """Offset, size and label of a shard's images, in their order."""
    images: dict[str, tuple[int, int]] = {}
    labels: dict[str, int] = {}
    try:
        with readable(file), tarfile.open(file, "r:") as shard:
            for member in shard:
                folder, _, base = member.name.rpartition("/")
                stem, _, kind = base.partition(".")
                key = f"{folder}/{stem}"
                if not member.isfile() or base.startswith("."):
                    continue
                if f".{kind.lower()}" in IMAGES:
                    if key in images:
                        raise DataError(f"{file} has two images of {key.lstrip('/')}: expected one beside each label")
                    images[key] = (member.offset_data, member.size)
                elif kind.lower() in ("cls", "json"):
                    content = shard.extractfile(member)
                    labels |= {} if content is None else _label(key, kind.lower(), content.read())
            if not _ended(file, shard.offset):
                raise tarfile.ReadError("it has no end mark")
    except (tarfile.TarError, OSError) as error:
        raise DataError(f"{file} is truncated or no plain tar ({error}): download or write it again") from error
    if missing := [key for key in images if key not in labels]:
        raise DataError(f"{file} has no label of {missing[0].lstrip('/')}: expected KEY.cls with a number beside it")
    return ((offset, size, labels[key]) for key, (offset, size) in images.items())


def _ended(file: Path, offset: int) -> bool:
    """Whether a block of zeros follows the last member: a shard may have been cut between two of them."""
    with file.open("rb") as bare:
        bare.seek(offset)
        return bare.read(tarfile.BLOCKSIZE) == bytes(tarfile.BLOCKSIZE)


def _label(key: str, kind: str, content: bytes) -> dict[str, int]:
    try:
        found = json.loads(content)
        number = found.get("label") if kind == "json" else found
    except (ValueError, AttributeError):
        number = None
    return {key: number} if isinstance(number, int) and not isinstance(number, bool) else {}
