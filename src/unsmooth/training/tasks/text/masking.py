"""Which tokens a masked language model has to guess: exactly as many in every sequence (Geiping & Goldstein 2023)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Int64
from torch import Tensor

MASKED, REPLACED = 0.8, 0.1  # of the chosen: become [MASK], become a random token; the others stay


@dataclass(frozen=True)
class Hidden:
    """Where tokens are hidden, those that become [MASK] first, and the random tokens that some others become."""

    positions: Int64[Tensor, "row hidden"]
    words: Int64[Tensor, "row random"]


def draw_hidden(rows: int, length: int, share: float, vocabulary: int, generator: torch.Generator) -> Hidden:
    """round(share · length) positions of every sequence.

    Fixed counts (80 % [MASK], 10 % random, 10 % kept, of every sequence) give fixed shapes, so that the whole step
    can be captured as one graph. Separators are hidden like other tokens, as in the crammed BERT.
    """
    count = round(share * length)
    random = round((MASKED + REPLACED) * count) - round(MASKED * count)
    positions = torch.rand(rows, length, generator=generator).argsort(1)[:, :count]
    return Hidden(positions, torch.randint(vocabulary, (rows, random), generator=generator))


def hide(
    ids: Int64[Tensor, "row token"], hidden: Hidden, mask_id: int
) -> tuple[Int64[Tensor, "row token"], Int64[Tensor, "row hidden"]]:
    """The ids with tokens hidden, and which tokens they were."""
    count, random = hidden.positions.shape[1], hidden.words.shape[1]
    masked = round(MASKED * count)
    targets = ids.gather(1, hidden.positions)
    shown = torch.cat([torch.full_like(targets[:, :masked], mask_id), hidden.words, targets[:, masked + random :]], 1)
    return ids.scatter(1, hidden.positions, shown), targets
