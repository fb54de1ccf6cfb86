"""The values behind the means, sample by sample, as long as they are few: what a paired comparison needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Int64
from torch import Tensor

from unsmooth.errors import CheckpointError
from unsmooth.metrics.processes import gathered, rendezvous
from unsmooth.sources.packed import pack, unpack

# Values that a measurement keeps, 16 MiB of them; 1,000 samples at all points of a ViT-B are a seventh of it. Beyond
# that it keeps none, not the first ones: the beginning of sorted data is no fair sample.
MOST_VALUES = 1 << 21
Address = tuple[str, ...]


@dataclass(frozen=True)
class PerSample:
    """One row of values for each address (a `Cell`), one column for each sample, whose key names its input."""

    addresses: tuple[Address, ...]
    keys: npt.NDArray[np.int64]
    table: npt.NDArray[np.float64]

    def __getitem__(self, address: Address) -> npt.NDArray[np.float64]:
        return self.table[self._rows[address]]

    def __len__(self) -> int:
        return len(self.keys)

    @cached_property
    def _rows(self) -> dict[Address, int]:
        return {address: row for row, address in enumerate(self.addresses)}

    def merge(self, other: PerSample) -> PerSample | None:
        """The samples of both; None if they are too many."""
        rows = other.table[[other._rows[address] for address in self.addresses]]
        return self._of([self.keys, other.keys], [self.table, rows])

    def ordered(self, addresses: Iterable[Address]) -> PerSample:
        """The same with its addresses in another order; NaN for one that has no values per sample."""
        order = tuple(addresses)
        table = np.vstack([self.table, np.full((1, len(self)), np.nan)])
        return PerSample(order, self.keys, table[[self._rows.get(address, -1) for address in order]])

    def _of(self, keys: Sequence[npt.NDArray[np.int64]], tables: Sequence[npt.NDArray[Any]]) -> PerSample | None:
        if sum(table.size for table in tables) > MOST_VALUES:
            return None
        return PerSample(self.addresses, np.concatenate(keys), np.concatenate(tables, axis=1))

    def to_json(self) -> dict[str, Any]:
        """Compressed, in base64."""
        return {
            "encoding": "base64 of zlib; keys: little-endian int64; values: little-endian float64, cell by cell",
            "keys": pack(self.keys, "<i8"),
            "values": pack(self.table, "<f8"),
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any], addresses: Sequence[Address]) -> PerSample:
        """The inverse of to_json."""
        try:
            keys = unpack(found["keys"], "<i8", MOST_VALUES).astype(np.int64)
            values = unpack(found["values"], "<f8", MOST_VALUES).astype(np.float64)
            return cls(tuple(addresses), keys, values.reshape(len(addresses), len(keys)))
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"the values per sample are damaged ({error}): measure again, or remove 'per_sample' from the file"
            ) from error


class Recorder:
    """Takes in one batch after another; lets everything go once it is too much, or a sample has no key."""

    def __init__(self) -> None:
        self._keys: list[npt.NDArray[np.int64]] = []
        self._tables: list[npt.NDArray[np.float64]] = []
        self._addresses: tuple[Address, ...] = ()
        self._size = 0

    def add(
        self, keys: Int64[Tensor, " batch"] | None, addresses: Sequence[Any], table: npt.NDArray[np.float64]
    ) -> None:
        """The values of one batch, a row for each address, and the keys of its samples."""
        if self._size > MOST_VALUES or not addresses:
            return
        known = keys is not None and len(keys) == table.shape[1]
        self._size += table.size if known else MOST_VALUES + 1
        if self._size > MOST_VALUES or keys is None:
            self._keys, self._tables = [], []
            return
        self._addresses = tuple(addresses)
        self._keys.append(keys.cpu().numpy().copy())
        self._tables.append(table)

    def result(self) -> PerSample | None:
        """What was recorded; None if it was let go."""
        if not self._tables:
            return None
        return PerSample(self._addresses, np.concatenate(self._keys), np.concatenate(self._tables, axis=1))


def all_gather(mine: PerSample | None) -> PerSample | None:
    """The samples of all processes in the order of the ranks, on each; None if one has none, or all have too many."""
    device = rendezvous()
    if device is None:
        return mine
    counts = gathered(torch.tensor([-1 if mine is None else len(mine)], device=device))
    sizes = [int(count) for count in counts]
    if mine is None or min(sizes) < 0:
        return None
    block = np.zeros((len(mine.addresses) + 1, max(sizes)), dtype=np.int64)  # values travel as integers: bit for bit
    block[0, : len(mine)], block[1:, : len(mine)] = mine.keys, mine.table.view(np.int64)
    if block[1:].size / max(sizes) * sum(sizes) > MOST_VALUES:
        return None
    blocks = [b[:, :n].cpu().numpy() for b, n in zip(gathered(torch.from_numpy(block).to(device)), sizes, strict=True)]
    return mine._of([b[0] for b in blocks], [np.ascontiguousarray(b[1:]).view(np.float64) for b in blocks])
