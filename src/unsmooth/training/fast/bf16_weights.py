"""bfloat16 copies of weights, made all at once: autocast rounds each in a kernel of its own, and each gradient."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn


class BF16Weights(AbstractContextManager[None]):
    """Inside, the weights of these layers are copies in bfloat16; `take_gradients` hands their gradients on.

    What is computed is what autocast computes, to the bit: the same numbers are rounded at the same places.
    """

    def __init__(self, layers: Iterable[nn.Linear]) -> None:
        self.layers = list(layers)
        self.weights: list[Tensor] = [layer.weight for layer in self.layers]
        self.copies: list[Tensor] = [nn.Parameter(weight.detach().bfloat16()) for weight in self.weights]

    def __enter__(self) -> None:
        _copy(self.copies, self.weights)
        self._put(self.copies)

    def __exit__(self, *error: object) -> None:
        self._put(self.weights)

    def take_gradients(self) -> None:
        """Give the weights the gradients of their copies."""
        pairs = zip(self.weights, self.copies, strict=True)
        found = [(weight, torch.empty_like(weight), copy.grad) for weight, copy in pairs if copy.grad is not None]
        _copy([grad for _, grad, _ in found], [rounded for _, _, rounded in found])
        for weight, grad, _ in found:
            weight.grad = grad
        for copy in self.copies:
            copy.grad = None

    def _put(self, weights: Iterable[Tensor]) -> None:
        for layer, weight in zip(self.layers, weights, strict=True):
            layer._parameters["weight"] = weight  # type: ignore[assignment]


@torch.no_grad()
def _copy(targets: list[Tensor], sources: list[Tensor]) -> None:
    if targets:
        torch._foreach_copy_(targets, sources)


def plain_linears(model: nn.Module) -> list[nn.Linear]:
    """The layers whose weight is a parameter of their own: neither computed (as control's are) nor shared."""
    layers = [layer for layer in model.modules() if type(layer) is nn.Linear]
    count = Counter(id(layer.weight) for layer in layers)
    return [layer for layer in layers if count[id(layer.weight)] == 1 and layer.weight.requires_grad]
