"""The order of sequences over a whole run: one shuffled pass after the other, known from a position alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Int64
from torch import Tensor

from unsmooth.errors import OptionError


@dataclass(frozen=True)
class Order:
    """`take(start, count)` are the next `count` sequences after the first `start` of the run.

    A batch may reach from one pass into the next; none is dropped and none comes twice within a pass. So a run goes on
    in the middle of a pass with nothing but its position, whatever the sizes of its batches were.
    """

    sequences: int
    seed: int

    def __post_init__(self) -> None:
        if self.sequences < 1:
            raise OptionError(f"expected at least one sequence, got {self.sequences}")

    def take(self, start: int, count: int) -> Int64[Tensor, " row"]:
        """Indices of sequences.

        >>> order = Order(4, seed=0)
        >>> sorted(order.take(0, 4).tolist()), order.take(2, 4)[:2].equal(order.take(0, 4)[2:])
        ([0, 1, 2, 3], True)
        """
        parts, position = [], start
        while position < start + count:
            passed, inside = divmod(position, self.sequences)
            end = min(self.sequences, inside + start + count - position)
            parts.append(_shuffled(self.sequences, self.seed, passed)[inside:end])
            position += end - inside
        return torch.cat(parts) if parts else torch.empty(0, dtype=torch.int64)


@lru_cache(maxsize=2)
def _shuffled(count: int, seed: int, passed: int) -> Int64[Tensor, " row"]:
    return torch.randperm(count, generator=torch.Generator().manual_seed(1_000_003 * seed + passed))
