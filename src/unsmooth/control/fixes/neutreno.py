"""NeuTRENO (Nguyen et al. 2023): pull every layer's attention output towards the first layer's values.

As in the authors' code (tamnguyen9520/NeuTRENO_NeurIPS2024, DeiT/neutreno.py): in each head, before the
projection, from the second layer on, with gradients through V⁰. The strength 0.6 is theirs for ImageNet and ADE20K; for
WikiText-103 they take 0.4. With `layers` we take V⁰ from the first selected layer, they from the first of the model.
"""

from __future__ import annotations

from torch import Tensor, nn

from unsmooth.control.fixes.base import AttentionFix, Fix, LayerShape, Maps, Values
from unsmooth.errors import WeightsError


class NeuTRENO(AttentionFix):
    """A V + strength · (V⁰ − V); V⁰ are the values of the first selected layer in the same forward pass."""

    def __init__(self, strength: float, first: list[Tensor], position: int, last: bool) -> None:
        super().__init__()
        self.strength, self.position, self.last = strength, position, last
        self._first = first  # one list for all layers: written by the first, emptied by the last

    def mix(self, a: Maps, v: Values) -> Values:
        """The heads' outputs with the value residual."""
        if self.position == 0:
            self._first[:] = [v]
        if not self._first:
            raise WeightsError(
                "neutreno needs the first selected layer's values of the same forward pass: run the whole model, "
                "without gradient checkpointing"
            )
        residual = self._first[0] - v
        if self.last:
            self._first.clear()
        return a @ v + self.strength * residual


def _build(shapes: list[LayerShape], strength: float = 0.6) -> list[nn.Module]:
    first: list[Tensor] = []
    return [NeuTRENO(strength, first, position, position == len(shapes) - 1) for position in range(len(shapes))]


FIX = Fix("neutreno", "Nguyen et al. 2023", "attention", _build)
