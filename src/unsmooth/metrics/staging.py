"""Points whose tokens wait on a device until there are enough of them: the same few launches reduce all."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Generic, TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from unsmooth.metrics.statistics import chunk

DEFERRED_BYTES = 1 << 29  # of tokens that wait, and as many of Gram matrices; less on a small device
MOST_SLOTS = 64  # points that are reduced together
Key = TypeVar("Key", bound=Hashable)
Mask = Bool[Tensor, "batch token"] | None
MaskOf = Callable[[Float[Tensor, "*point batch token"]], Bool[Tensor, "*point batch token"] | None]


@dataclass
class Stage(Generic[Key]):
    """Points of one shape, one slot each, with their masks and the key under which their norms are kept."""

    tokens: Float[Tensor, "slot batch token dim"]
    points: list[tuple[Mapping[Key, Mask | MaskOf], Key | None]]


class Stages(Generic[Key]):
    """Points that wait, by shape, device and masks."""

    def __init__(self) -> None:
        self._open: dict[Hashable, Stage[Key]] = {}

    def add(
        self, x: Float[Tensor, "batch token dim"], masks: Mapping[Key, Mask | MaskOf], keep_norms: Key | None
    ) -> Stage[Key] | None:
        """The stage that is full with this point, or the point alone where it need not wait; None while it waits."""
        tensors = any(isinstance(mask, Tensor) for mask in masks.values())
        like = (x.shape, x.dtype, x.device, tuple(map(id, masks.values())))
        slots = min(MOST_SLOTS, _room(x.device) // max(1, x.nbytes))
        if tensors or slots < 2 or is_long(x):
            return Stage(x[None], [(masks, keep_norms)])
        if like not in self._open:
            self._open[like] = Stage(x.new_empty(slots, *x.shape), [])
        stage = self._open[like]
        stage.tokens[len(stage.points)].copy_(x)
        stage.points.append((masks, keep_norms))
        return self._open.pop(like) if len(stage.points) == slots else None

    def take_all(self) -> list[Stage[Key]]:
        """Those that are not full."""
        left, self._open = list(self._open.values()), {}
        return left


def is_long(x: Float[Tensor, "batch token dim"]) -> bool:
    """Whether a copy of the features would be large beside their Gram matrix."""
    return x.shape[-2] > x.shape[-1] and x.numel() > 4 * chunk(x.device)


def _room(device: torch.device) -> int:
    """Bytes of tokens that may wait on a device: a 64th of its memory at most."""
    return min(DEFERRED_BYTES, _memory(device) // 64) if device.type == "cuda" else DEFERRED_BYTES


@cache
def _memory(device: torch.device) -> int:
    return int(torch.cuda.get_device_properties(device).total_memory)
