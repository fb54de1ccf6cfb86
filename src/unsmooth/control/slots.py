"""The places where a layer keeps W_V and W_proj, and the `parametrize` modules that supply them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils import parametrize

from unsmooth.control.computed_once import ComputedOnce
from unsmooth.control.spectral import SpectralControl
from unsmooth.errors import WeightsError
from unsmooth.metrics.tolerance import tolerance
from unsmooth.models.fused_rows import Rows
from unsmooth.models.storage import whole


@dataclass(frozen=True)
class Place:
    """These `rows` of the tensor `name` of `module` hold W_Vᵀ or W_projᵀ, one row per output feature.

    `transposed` tensors (HF's Conv1D) have one column per output feature instead.
    """

    module: nn.Module
    name: str
    rows: Rows
    transposed: bool = False

    def tensor(self) -> Float[Tensor, "out dim"]:
        """The whole tensor, output features first."""
        value: Tensor = getattr(self.module, self.name)
        return value.mT if self.transposed else value

    def weight(self) -> Float[Tensor, "out in"]:
        """Its controlled rows."""
        return self.rows.read(self.tensor())


class Supplied(nn.Module):
    """Puts a controlled weight into its rows; the other rows (query, key) stay free parameters."""

    def __init__(self, control: SpectralControl, layer: int, which: int, place: Place) -> None:
        super().__init__()
        self._control = (control,)  # in a tuple: the model owns it, and its parameters must be listed once
        self.layer, self.which = layer, which
        self.rows, self.transposed = place.rows, place.transposed
        self.trained: bool = getattr(place.module, place.name).requires_grad  # for `bake` to restore
        self.attached = False

    def forward(self, free: Float[Tensor, "free dim"]) -> Tensor:
        """The whole tensor, in its module's own orientation."""
        full = self._control[0].read(self.layer, self.which).mT  # a Linear computes x Wᵀ
        free = whole(free)
        if free.shape[0]:
            # The pieces keep their order: fused tensors are [query, key, value], once or per head, or any sequence.
            full = self.rows.join(full.to(free.dtype), free)
        return full.mT if self.transposed else full

    def right_inverse(self, weight: Tensor) -> Float[Tensor, "free dim"]:
        """The rows that stay free. Controlled rows cannot be assigned alone: Θ and ψ drive two weights."""
        if self.attached:
            rows = weight.mT if self.transposed else weight
            self._refuse(self.rows.read(rows).mT)
        return self.rest(weight)

    def rest(self, weight: Tensor) -> Float[Tensor, "free dim"]:
        """All rows of a whole tensor but the controlled ones."""
        return self.rows.rest(weight.mT if self.transposed else weight)

    def _refuse(self, new: Float[Tensor, "in out"]) -> None:
        control = self._control[0]
        now = control.read(self.layer, self.which)
        allowed = tolerance(torch.promote_types(new.dtype, now.dtype), now.shape[-1])
        if not torch.allclose(new, now.to(new.dtype), rtol=0, atol=allowed * float(now.abs().max())):
            raise WeightsError(
                f"{('W_V', 'W_proj')[self.which]} of {control.names[self.layer]} is driven by Θ and ψ together with "
                "its partner and cannot be assigned alone: use `control_of(model).assign(layer, w_v, w_proj)`, "
                "or `bake` first"
            )


def supply(control: SpectralControl, layer: int, which: int, place: Place) -> None:
    """Let `control` supply these rows from now on."""
    part = Supplied(control, layer, which, place)
    weight = getattr(place.module, place.name).detach()
    if part.rest(weight).shape[0] == 0:
        # Nothing stays free. An empty parameter never gets a gradient, and DDP would wait for it: keep a buffer.
        delattr(place.module, place.name)
        place.module.register_buffer(place.name, weight)
    parametrize.register_parametrization(place.module, place.name, part)
    originals: nn.Module = place.module.parametrizations[place.name]  # type: ignore[index, assignment]
    if "original" in originals._buffers:
        originals._non_persistent_buffers_set.add("original")
    part.attached = True


class Added(nn.Module):
    """Adds what an adapter computes to its rows; the weight itself stays the parameter it was."""

    def __init__(self, adapter: ComputedOnce, layer: int, place: Place) -> None:
        super().__init__()
        self._adapter = (adapter,)  # in a tuple: the model owns it
        self.layer, self.rows, self.transposed = layer, place.rows, place.transposed

    def forward(self, weight: Tensor) -> Tensor:
        """The whole tensor, in its module's own orientation."""
        return self._changed(whole(weight), 1.0)

    def right_inverse(self, weight: Tensor) -> Tensor:
        """The weight that becomes this one when the update is added."""
        return self._changed(weight, -1.0)

    def _changed(self, weight: Tensor, sign: float) -> Tensor:
        rows = weight.mT if self.transposed else weight
        own = self.rows.read(rows)
        update = self._adapter[0].read(self.layer, 0).mT.to(torch.promote_types(rows.dtype, torch.float32))
        own = torch.add(own, update, alpha=sign).to(rows.dtype)
        full = own if len(own) == len(rows) else self.rows.join(own, self.rows.rest(rows))
        return full.mT if self.transposed else full


def add(adapter: ComputedOnce, layer: int, place: Place) -> None:
    """Let `adapter` add to these rows from now on."""
    parametrize.register_parametrization(place.module, place.name, Added(adapter, layer, place))


P = TypeVar("P", bound=nn.Module)


def driven(model: nn.Module, kind: type[P]) -> Iterator[tuple[str, nn.Module, str, P]]:
    """Path, module, tensor name and parametrisation of this kind, for every tensor of the model that has one."""
    for path, module in model.named_modules():
        for name, parts in getattr(module, "parametrizations", {}).items():
            for part in parts:
                if isinstance(part, kind):
                    yield path, module, name, part
