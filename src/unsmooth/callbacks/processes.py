"""The first process reads; all learn what came of it, so that none waits for ever."""

from __future__ import annotations

from enum import IntEnum

import torch
import torch.distributed as dist


class Outcome(IntEnum):
    """What came of a reading, the worst last."""

    FINE = 0
    ALARM = 1
    FAILED = 2


def together() -> bool:
    """Whether this training runs in several processes."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def first() -> bool:
    """Whether this process is the one that logs and judges."""
    return not together() or dist.get_rank() == 0


def agree(said: int) -> int:
    """The largest number that any process says, on every process (call it on all of them)."""
    if not together():
        return said
    device = torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")
    largest = torch.tensor([said], device=device)
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    return int(largest)
