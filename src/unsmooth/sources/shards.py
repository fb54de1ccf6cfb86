"""Token ids on disk, written once and read by memory map: sequences of one length, without padding."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64
from numpy.typing import NDArray
from torch import Tensor

from unsmooth.errors import CheckpointError, DataError
from unsmooth.sources.files import read_json, validate_file, write_atomically

SCHEMA = "unsmooth-tokens/1"
ABOUT = "tokens.json"
SHARD_BYTES = 64 << 20
Array = NDArray[Any]


@dataclass(frozen=True)
class Shard:
    """One file: how many sequences it holds, and their hash."""

    name: str
    sequences: int
    hash: str


@dataclass(frozen=True)
class TokenShards:
    """Sequences of `length` ids. `key` says what they were made from: the texts, the tokenizer and the settings."""

    folder: Path
    length: int
    vocabulary: int
    key: str
    shards: tuple[Shard, ...]

    def __len__(self) -> int:
        return sum(shard.sequences for shard in self.shards)

    @cached_property
    def _maps(self) -> list[Array]:
        kind = _dtype(self.vocabulary)
        return [np.memmap(self.folder / s.name, kind, "r", shape=(s.sequences, self.length)) for s in self.shards]

    @cached_property
    def _starts(self) -> Array:
        return np.cumsum([0, *(shard.sequences for shard in self.shards)])

    def rows(self, indices: Int64[Tensor, " row"]) -> Int64[Tensor, "row token"]:
        """These sequences, in this order."""
        wanted = indices.numpy()
        if len(wanted) and not 0 <= wanted.min() <= wanted.max() < len(self):
            raise DataError(f"expected sequences among 0 … {len(self) - 1}, got {wanted.min()} … {wanted.max()}")
        found = np.empty((len(wanted), self.length), np.int64)
        which = np.searchsorted(self._starts, wanted, side="right") - 1
        for shard in np.unique(which):
            here = which == shard
            found[here] = self._maps[shard][wanted[here] - self._starts[shard]]
        return torch.from_numpy(found)


def write_shards(
    ids: Iterable[Array], folder: Path, *, length: int, vocabulary: int, key: str, shard_bytes: int = SHARD_BYTES
) -> TokenShards:
    """Pack pieces of ids one after the other into sequences; the rest that fills no sequence is left out.

    The folder appears when all is written: an interrupted call leaves nothing under its name.
    """
    draft = folder.with_name(folder.name + ".part")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    kind, shards = _dtype(vocabulary), []
    per_shard = max(1, shard_bytes // (length * kind.itemsize))
    for number, block in enumerate(_blocks(ids, length, per_shard)):
        if int(block.max()) >= vocabulary:
            raise DataError(f"a token id of {int(block.max())} came from a tokenizer of {vocabulary} tokens")
        data, name = block.astype(kind).tobytes(), f"{number:05d}.bin"
        write_atomically(draft / name, data)
        shards.append(Shard(name, len(block), _hash(data)))
    if not shards:
        shutil.rmtree(draft)
        raise DataError(f"the text gives no sequence of {length} tokens: expected more text")
    about = {"length": length, "vocabulary": vocabulary, "key": key, "shards": [asdict(shard) for shard in shards]}
    write_atomically(draft / ABOUT, json.dumps({"schema": SCHEMA, **about}, indent=1))
    if folder.exists():
        shutil.rmtree(folder)
    draft.rename(folder)
    return open_shards(folder)


def open_shards(folder: Path) -> TokenShards:
    """Shards that were written whole; CheckpointError, with the file's name, where one was cut or changed."""
    about = read_json(folder / ABOUT, SCHEMA)
    with validate_file(folder / ABOUT):
        shards = tuple(Shard(str(s["name"]), int(s["sequences"]), str(s["hash"])) for s in about["shards"])
        found = TokenShards(folder, int(about["length"]), int(about["vocabulary"]), str(about["key"]), shards)
    for shard in shards:
        path = folder / shard.name
        expected = shard.sequences * found.length * _dtype(found.vocabulary).itemsize
        size = path.stat().st_size if path.is_file() else 0
        if size != expected or _hash(path.read_bytes()) != shard.hash:
            raise CheckpointError(
                f"{path} was cut short or changed ({size:,} bytes, {expected:,} expected): delete {folder}, and the "
                "tokens are made anew from the texts (where these are elsewhere, copy the tokens again)"
            )
    return found


def _blocks(ids: Iterable[Array], length: int, rows: int) -> Iterator[Array]:
    """Blocks of at most `rows` sequences."""
    size, waiting, count = length * rows, [], 0
    for piece in ids:
        waiting.append(piece)
        count += len(piece)
        while count >= size:
            whole = np.concatenate(waiting)
            yield whole[:size].reshape(rows, length)
            waiting, count = [whole[size:]], len(whole) - size
    if count >= length:
        whole = np.concatenate(waiting)
        yield whole[: count // length * length].reshape(-1, length)


def _dtype(vocabulary: int) -> np.dtype[Any]:
    return np.dtype(np.uint16 if vocabulary <= 1 << 16 else np.uint32)


def _hash(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
