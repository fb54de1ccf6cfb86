"""Weights of all layers in one batched call per forward pass.

Why not one `torch.nn.utils.parametrize` module per weight: a factorisation per weight would cost layers × 2 sequences
of small kernels instead of one, and a Θ drives two weights of different modules. So the parameters of all layers live
stacked in one module, a hook before the first controlled block computes every layer's weights at once, and thin
`parametrize` modules (slots.py) read them: class changes, `is_parametrized`, copies and Dynamo behave as with any
parametrisation. `parametrize.cached()` cannot do this: it caches weight by weight, and keeps its values until the user
leaves the context. Ours live from the first to the last controlled block of one forward pass; a read outside computes
that layer alone, and what a pass that ended early left behind is used only while its sources are what they were:
weights are never stale.

Why hooks on blocks: Dynamo runs a compiled model's own hooks outside the graph, and those of its parts inside.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from unsmooth.models.storage import whole
from unsmooth.models.view import module_of

#: Attributes that say whether a module runs its blocks again in the backward pass: timm's, and Hugging Face's.
CHECKPOINTING = ("grad_checkpointing", "gradient_checkpointing")


class ComputedOnce(nn.Module, ABC):
    """Computes `weights()` of all layers before the first controlled block, and forgets them after the last.

    `batched = False` makes every block compute its own weights, as blocks that run again in the backward pass must.
    timm's and Hugging Face's gradient checkpointing is noticed; `torch.utils.checkpoint` called by hand is not.
    """

    def __init__(self, names: Sequence[str], modes: Sequence[str]) -> None:
        super().__init__()
        self.names, self.modes = tuple(names), tuple(modes)
        self.batched = True
        #: Modules that may run blocks again in the backward pass; a tuple, so that they are not registered here.
        self.checkpointing: tuple[nn.Module, ...] = ()
        self._weights: tuple[Sequence[Tensor], ...] | None = None
        self._made_from: list[tuple[tuple[int, int], ...]] = []  # a layer each

    @abstractmethod
    def weights(self, layer: int | None = None) -> tuple[Tensor, ...]:
        """Every kind of weight, of all layers in one call (layer first), or of one layer."""

    def sources(self, layer: int) -> Iterable[Tensor]:
        """The parameters that a layer's weights are made of."""
        return self.parameters()

    @abstractmethod
    def check(self) -> None:
        """Raise `WeightsError` with the layers' names where the parameters stand for no weights (synchronises)."""

    def finite(self) -> Bool[Tensor, " layer"]:
        """Of which layers all parameters are."""
        return torch.stack([whole(p).isfinite().flatten(1).all(1) for p in self.parameters()]).all(0)

    def counted_modes(self) -> str:
        """How many layers have each mode, for `print(model)`."""
        return ", ".join(f"{self.modes.count(mode)} {mode}" for mode in dict.fromkeys(self.modes))

    def suspicious(self, weights: tuple[Tensor, ...]) -> bool:
        """Whether `check` should have a look; asked on a CPU only, where it is free."""
        return not bool(torch.isfinite(sum(weight.sum() for weight in weights)))  # type: ignore[arg-type]

    def fill(self, block: nn.Module, args: Any) -> None:
        """Hook before the first controlled block: compute all weights for this forward pass."""
        if not self.batched or any(_recomputes(module) for module in self.checkpointing):
            self._weights = None
            return
        weights = self.weights()
        # On a GPU it would synchronise every step, so `ControlMonitor.check` does it there.
        if weights[0].device.type == "cpu" and not torch.compiler.is_compiling() and self.suspicious(weights):
            self.check()
        # Unbound: the gradient of a weight picked by index would be a stack of zeros, for every layer.
        self._weights = tuple(weight.unbind() for weight in weights)
        if not torch.compiler.is_compiling():
            self._made_from = [self._state(layer) for layer in range(len(self.names))]

    def clear(self, block: nn.Module, args: Any, output: Any) -> None:
        """Hook after the last controlled block: forget them."""
        self._weights = None

    def read(self, layer: int, which: int) -> Tensor:
        """One kind of weight of one layer: this pass's, or computed now."""
        weights = self._weights  # once: another thread's pass may end meanwhile
        if weights is None or self._outdated(layer, weights):
            return self.weights(layer)[which]
        return weights[which][layer]

    def _outdated(self, layer: int, weights: tuple[Sequence[Tensor], ...]) -> bool:
        """Left by a pass that ended early, or made without gradients (in a re-entrant checkpoint) but needed with."""
        if torch.compiler.is_compiling():
            return False
        learns = torch.is_grad_enabled() and any(p.requires_grad for p in self.sources(layer))
        return self._made_from[layer] != self._state(layer) or (learns and not weights[-1][0].requires_grad)

    def _state(self, layer: int) -> tuple[tuple[int, int], ...]:
        """Changes with every in-place change of a source, and when other tensors take their place."""
        return tuple((id(p), 0 if p.is_inference() else p._version) for p in self.sources(layer))

    def __getstate__(self) -> dict[str, Any]:
        """For copies: without the weights of a pass that ended early."""
        return {**self.__dict__, "_weights": None}

    def attach(self, model: nn.Module, owner: nn.Module, attribute: str, blocks: Sequence[nn.Module]) -> None:
        """Become a part of `owner` (the transformer inside the model) that acts from the first to the last block."""
        self.checkpointing = tuple(
            part for part in model.modules() if any(hasattr(part, name) for name in CHECKPOINTING)
        )
        # The transformer, not what is around it, has the parameters: its `parameters()`, its copies, its checkpoint.
        owner.add_module(attribute, self)
        blocks[0].register_forward_pre_hook(self.fill)
        blocks[-1].register_forward_hook(self.clear)
        owner.register_forward_hook(self.clear, always_call=True)  # a pass that fails must not leave weights behind

    def _named(self, marked: Tensor) -> str:
        return ", ".join(name for name, hit in zip(self.names, marked.tolist(), strict=True) if hit)


C = TypeVar("C", bound=ComputedOnce)


def attached(model: nn.Module, attribute: str, kind: type[C]) -> list[tuple[nn.Module, C]]:
    """Every part of the model that one of this kind is attached to, with it."""
    parts = ((part, getattr(part, attribute, None)) for part in module_of(model).modules())
    return [(part, found) for part, found in parts if isinstance(found, kind)]


def _recomputes(module: nn.Module) -> bool:
    return any(getattr(module, name, False) for name in CHECKPOINTING)
