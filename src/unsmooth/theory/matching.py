"""The term rank of a pattern: its largest set of entries with no two in one row or column."""

from __future__ import annotations

from jaxtyping import Bool
from torch import Tensor


def term_rank(pattern: Bool[Tensor, "row column"]) -> int:
    """Maximum bipartite matching by augmenting paths; the rank of a generic matrix with this pattern.

    >>> import torch
    >>> term_rank(torch.tensor([[True, True], [True, False], [True, False]]))
    2
    """
    rows = [row.nonzero().flatten().tolist() for row in pattern if bool(row.any())]
    owner: dict[int, int] = {}  # column -> row
    return sum(_augment(start, rows, owner) for start in range(len(rows)))


def _augment(start: int, rows: list[list[int]], owner: dict[int, int]) -> bool:
    # breadth-first, so that a long alternating path cannot exhaust the call stack
    parent: dict[int, int] = {}  # column -> row it was reached from
    reached = {start: -1}  # row -> the column it holds
    queue = [start]
    for row in queue:
        for column in rows[row]:
            if column in parent:
                continue
            parent[column] = row
            holder = owner.get(column)
            if holder is None:
                while column >= 0:
                    row_of = parent[column]
                    owner[column] = row_of
                    column = reached[row_of]
                return True
            reached[holder] = column
            queue.append(holder)
    return False
