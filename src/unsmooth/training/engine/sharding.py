"""FSDP2: each process holds a part of every parameter, gradient and moment; looks and checkpoints see all of them."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Int64
from torch import Tensor, nn

from unsmooth.errors import OptionError
from unsmooth.metrics.processes import gathered
from unsmooth.models import view
from unsmooth.models.storage import is_sharded, whole


def requested() -> bool:
    """Whether `accelerate launch --use_fsdp --fsdp_version 2` started this process; what it asks for beyond is refused.

    Read from what the launcher sets: accelerate's own state knows of no FSDP on a CPU.
    """
    said = {name: os.environ.get(name, "").lower() for name in ("ACCELERATE_USE_FSDP", "FSDP_VERSION")}
    if said["ACCELERATE_USE_FSDP"] != "true":
        return False
    if said["FSDP_VERSION"] != "2":
        raise OptionError(f"--use_fsdp came with version {said['FSDP_VERSION'] or '1'}: expected --fsdp_version 2")
    if os.environ.get("FSDP_OFFLOAD_PARAMS", "").lower() == "true":
        raise OptionError("a sharded model is trained on its GPUs: leave --fsdp_offload_params out, or use more GPUs")
    return True


class ShardedModel:
    """A model whose blocks are sharded in place, and a copy of it in the host's memory for whatever needs it whole."""

    def __init__(self, model: nn.Module) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        self.model, self.device = model, next(model.parameters()).device
        self.copy = copy.deepcopy(model.cpu())  # a GPU need not hold both
        model.to(self.device)
        mesh = init_device_mesh(self.device.type, (torch.distributed.get_world_size(),))
        for block in {id(layer.block): layer.block for layer in view(model).layers}.values():
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)

    @contextmanager
    def gathered(self) -> Iterator[nn.Module]:
        """The whole model on the device, weights alone; every process must take part."""
        kept = self.copy.to(self.device)
        try:
            with torch.no_grad():
                for own, part in zip(kept.state_dict().values(), self.model.state_dict().values(), strict=True):
                    own.copy_(whole(part))
            yield kept
        finally:
            kept.cpu()


def part_like(value: Tensor, own: Tensor) -> Tensor:
    """The part of a whole tensor that belongs where `own` is; the tensor itself where `own` is whole."""
    if not is_sharded(own):
        return value
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(own, DTensor)
    return distribute_tensor(value.to(own.device), own.device_mesh, own.placements)


def in_order(position: Int64[Tensor, part], *rows: Tensor) -> list[Tensor]:
    """Rows of all processes in the order of their positions; every process must call this, with any number of rows."""
    order = _from_all(position).argsort()
    return [_from_all(part)[order] for part in rows]


def _from_all(part: Tensor) -> Tensor:
    """One process's rows after the other's."""
    sizes = [int(count) for count in gathered(torch.tensor([len(part)], device=part.device))]
    padded = part.new_zeros(max(sizes), *part.shape[1:])
    padded[: len(part)] = part
    return torch.cat([rows[:size] for rows, size in zip(gathered(padded), sizes, strict=True)])
