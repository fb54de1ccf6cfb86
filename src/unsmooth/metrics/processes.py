"""What the processes of torch.distributed tell each other; each of these is called on all of them."""

from __future__ import annotations

import hashlib
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")


def rendezvous() -> str | None:
    """The device on which the processes of torch.distributed exchange tensors; None when there is only one process."""
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return None
    return "cuda" if dist.get_backend() == "nccl" else "cpu"


def gathered(mine: Tensor) -> list[Tensor]:
    """The tensors of all processes in the order of the ranks, all of one shape, where there are several."""
    everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, mine)
    return everyone


def everybodys(mine: T) -> list[T]:
    """What each process has, in the order of the ranks: anything that can be pickled."""
    if rendezvous() is None:
        return [mine]
    everyone: list[T] = [mine] * dist.get_world_size()
    dist.all_gather_object(everyone, mine)
    return everyone


def same_everywhere(text: str) -> bool:
    """Whether every process says the same text."""
    device = rendezvous()
    if device is None:
        return True
    mine = torch.tensor(list(hashlib.sha256(text.encode()).digest()), dtype=torch.int64, device=device)
    return all(bool((other == mine).all()) for other in gathered(mine))
