"""Which rows of a fused weight are the ones that a slot means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Shaped
from torch import Tensor

from unsmooth.errors import WeightsError
from unsmooth.models.family import Slot

if TYPE_CHECKING:
    from unsmooth.models.view import LayerView


@dataclass(frozen=True)
class Rows:
    """`start:stop` of each of `groups` equal groups of a fused tensor's rows."""

    groups: int
    start: int
    stop: int

    def read(self, whole: Shaped[Tensor, "all ..."]) -> Shaped[Tensor, "row ..."]:
        """These rows, in their order.

        >>> Rows(2, 1, 3).read(torch.arange(6))  # two groups of three
        tensor([1, 2, 4, 5])
        """
        if self.groups == 1:  # the usual case; three views less, and as many in the backward pass
            return whole if (self.start, self.stop) == (0, len(whole)) else whole[self.start : self.stop]
        return whole.unflatten(0, (self.groups, -1))[:, self.start : self.stop].flatten(0, 1)

    def rest(self, whole: Shaped[Tensor, "all ..."]) -> Shaped[Tensor, "other ..."]:
        """All other rows, in their order."""
        grouped = whole.unflatten(0, (self.groups, -1))
        return torch.cat([grouped[:, : self.start], grouped[:, self.stop :]], 1).flatten(0, 1)

    def join(self, own: Shaped[Tensor, "row ..."], rest: Shaped[Tensor, "other ..."]) -> Shaped[Tensor, "all ..."]:
        """The whole from `read` and `rest`."""
        own, rest = own.unflatten(0, (self.groups, -1)), rest.unflatten(0, (self.groups, -1))
        return torch.cat([rest[:, : self.start], own, rest[:, self.start :]], 1).flatten(0, 1)

    def write(self, whole: Shaped[Tensor, "all ..."], new: Shaped[Tensor, "row ..."]) -> None:
        """Put new rows into the whole, in place."""
        part = whole.unflatten(0, (self.groups, -1))[:, self.start : self.stop]
        part.copy_(new.unflatten(0, (self.groups, -1)))


def rows_of(layer: LayerView, slot: Slot, size: int) -> Rows:
    """Which rows of a weight with `size` of them the slot means."""
    groups = layer.kv_heads if slot.groups == "kv_heads" else slot.groups
    if size % groups:
        raise WeightsError(
            f"{layer.name}: expected {groups} equal groups of rows at {slot.path}.{slot.weight}, which has {size}"
        )
    each = size // groups
    part = layer.kv_heads * layer.key_dim // groups if slot.part < 0 else each // slot.of
    start = slot.part * part + (each if slot.part < 0 else 0)
    if start < 0:
        raise WeightsError(
            f"{layer.name}: {size} rows at {slot.path}.{slot.weight} are too few for {layer.kv_heads} value heads of "
            f"{layer.key_dim} features at part {slot.part}"
        )
    return Rows(groups, start, start + part)
