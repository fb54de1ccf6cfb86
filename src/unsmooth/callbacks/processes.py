"""One process measures; the others learn what came of it, so that none waits for ever."""

from __future__ import annotations

from enum import IntEnum

import torch
import torch.distributed as dist


class Outcome(IntEnum):
    """What the first process says to the others after its turn."""

    FINE = 0
    ALARM = 1
    FAILED = 2


def together() -> bool:
    """Whether this training runs in several processes."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def first() -> bool:
    """Whether this process is the one that measures."""
    return not together() or dist.get_rank() == 0


def agree(outcome: Outcome) -> Outcome:
    """The first process's outcome, on every process (call it on all of them)."""
    if not together():
        return outcome
    device = torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")
    said = torch.tensor([int(outcome)], device=device)
    dist.broadcast(said, src=0)
    return Outcome(int(said))
