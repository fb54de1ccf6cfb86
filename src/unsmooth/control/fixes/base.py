"""What a published fix is: a small module per layer, and the place in the layer where it acts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from jaxtyping import Float
from torch import Tensor, nn

Maps = Float[Tensor, "batch head query key"]
Values = Float[Tensor, "batch head key dim"]
Features = Float[Tensor, "batch token dim"]

#: On the attention matrix and values, on the attention's output, or on what goes into the block's normalisations.
Place = Literal["attention", "output", "norm"]


class AttentionFix(nn.Module):
    """Acts inside attention: on the softmax matrix, and on its product with the values."""

    def _load_from_state_dict(self, state: dict[str, Tensor], prefix: str, *args: Any) -> None:
        """What there is of each head is a vector, which does not decay; version 0.1 had heads × 1 × 1."""
        for name, here in self.state_dict().items():
            found = state.get(prefix + name)
            if found is not None and found.shape == (*here.shape, 1, 1):
                state[prefix + name] = found.reshape(here.shape)
        super()._load_from_state_dict(state, prefix, *args)

    def matrix(self, a: Maps, uniform: Maps) -> Maps:
        """A after the softmax, before dropout; `uniform` averages the tokens each query may see (11ᵀ/n)."""
        return a

    def mix(self, a: Maps, v: Values) -> Values:
        """What every head gives to W_proj."""
        return a @ v


@dataclass(frozen=True)
class LayerShape:
    """What a fix may need to know about its layer."""

    index: int
    count: int
    dim: int
    heads: int


@dataclass(frozen=True)
class Fix:
    """A published fix. `build(shapes, **options)` gives one module per layer, for all selected layers together."""

    name: str
    paper: str
    place: Place
    build: Callable[..., list[nn.Module]]


def each(make: Callable[..., nn.Module]) -> Callable[..., list[nn.Module]]:
    """A `build` whose layers do not know each other."""

    def build(shapes: list[LayerShape], **options: object) -> list[nn.Module]:
        return [make(shape, **options) for shape in shapes]

    return build
