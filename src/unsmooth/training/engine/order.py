"""The order of samples over a whole run: one shuffled pass after the other, known from a position alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Int64
from torch import Tensor

from unsmooth.errors import OptionError

WINDOW = 8192  # samples that are shuffled among each other where they can be read in blocks only


@dataclass(frozen=True)
class Order:
    """`take(start, count)` are the next `count` samples after the first `start` of the run.

    A batch may reach from one pass into the next; none is dropped and none comes twice within a pass. So a run goes on
    in the middle of a pass with nothing but its position, whatever the sizes of its batches were.

    `blocks` are the sizes of what is read at once (a row group of parquet): they are shuffled, and then the samples of
    a window of them, so that a batch asks for few.
    """

    samples: int
    seed: int
    blocks: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise OptionError(f"expected at least one sample, got {self.samples}")
        if self.blocks and sum(self.blocks) != self.samples:
            raise OptionError(f"blocks of {sum(self.blocks)} samples do not hold {self.samples}")

    def take(self, start: int, count: int) -> Int64[Tensor, " row"]:
        """Indices of samples.

        >>> order = Order(4, seed=0)
        >>> sorted(order.take(0, 4).tolist()), order.take(2, 4)[:2].equal(order.take(0, 4)[2:])
        ([0, 1, 2, 3], True)
        """
        parts, position = [], start
        while position < start + count:
            passed, inside = divmod(position, self.samples)
            end = min(self.samples, inside + start + count - position)
            parts.append(_shuffled(self.samples, self.seed, passed, self.blocks)[inside:end])
            position += end - inside
        return torch.cat(parts) if parts else torch.empty(0, dtype=torch.int64)


@lru_cache(maxsize=2)
def _shuffled(count: int, seed: int, passed: int, blocks: tuple[int, ...]) -> Int64[Tensor, " row"]:
    rng = torch.Generator().manual_seed(1_000_003 * seed + passed)
    if not blocks:
        return torch.randperm(count, generator=rng)
    parts = torch.arange(count).split(list(blocks))
    read = torch.cat([parts[block] for block in torch.randperm(len(blocks), generator=rng).tolist()])
    windows = torch.arange(count) // WINDOW
    return read[(windows + torch.rand(count, generator=rng, dtype=torch.float64)).argsort()]
