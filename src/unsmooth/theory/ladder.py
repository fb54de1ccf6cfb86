"""From the theorem's layer to a real one, one assumption relaxed at a time; HFC/LFC predicted and measured.

The first rung is the theorem's own setting; each further one adds one thing that real blocks have and keeps all that
came before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import gelu, layer_norm

from unsmooth.metrics import hfc_lfc_ratio
from unsmooth.theory.exponent import layer_exponent
from unsmooth.theory.scenario import MODES, Mode, random_h
from unsmooth.theory.simulate import simulate

TOKENS, DIM, HEADS, LAYERS = 64, 32, 4, 128
CONSTANT = 0.1  # standard deviation of the biases
ROUNDING = 15.0  # beyond 10^±15 HFC/LFC is rounding
RUNGS = (
    "theorem: symmetric A, H",
    "+ H not symmetric",
    "+ A not symmetric",
    "+ many heads",
    "+ LayerNorm before it",
    "+ constants (biases)",
    "+ an MLP after it",
    "+ A follows the features",
)


@dataclass(frozen=True)
class Draw:
    """One layer at one rung: log10 HFC/LFC at the start, after the theory's layers, after the real ones; and γ."""

    rung: str
    mode: Mode
    start: float
    predicted: float
    measured: float
    exponent: float

    @property
    def rose(self) -> bool:
        """Whether HFC/LFC ended above its start."""
        return self.measured > self.start


@dataclass(frozen=True)
class Layer:
    """`X + Σ_h A_h N(X) W_h + b`, then an MLP; N is LayerNorm where there is a weight. A may follow the features."""

    attention: Float[Tensor, "head token token"] | Callable[[Tensor], Tensor]
    weights: Float[Tensor, "head dim dim"]
    norm_weight: Tensor | None = None
    norm_bias: Tensor | None = None
    offset: Tensor | None = None
    mlp: Callable[[Tensor], Tensor] | None = None

    def __call__(self, x: Tensor) -> Tensor:
        inner = x if self.norm_weight is None else layer_norm(x, x.shape[-1:], self.norm_weight, self.norm_bias)
        x = x + (self._attention(inner) @ inner @ self.weights).sum(0)
        x = x if self.offset is None else x + self.offset
        return x if self.mlp is None else x + self.mlp(x)

    def draw(self, rung: str, mode: Mode, x: Tensor, layers: int = LAYERS) -> Draw:
        """The layer repeated, beside what the theory knows of it: folded weights, A and scale frozen at the start."""
        inner, weights, scale = x, self.weights, 1.0
        if self.norm_weight is not None:
            inner = layer_norm(x, x.shape[-1:], self.norm_weight, self.norm_bias)
            weights = self.norm_weight[:, None] * weights
            weights = weights - weights.mean(-2, keepdim=True)
            scale = float(x.var(-1, unbiased=False).add(1e-5).rsqrt().mean())
        return compared(rung, mode, x, self, self._attention(inner), weights, scale, layers)

    def _attention(self, inner: Tensor) -> Tensor:
        return self.attention if isinstance(self.attention, Tensor) else self.attention(inner)


def compared(
    rung: str, mode: Mode, x: Tensor, block: Callable[[Tensor], Tensor], attention: Tensor,
    weights: Tensor | tuple[Tensor, Tensor], scale: float, layers: int,
) -> Draw:  # fmt: skip
    """A block repeated, and the theory's linear layer repeated as often."""
    scaled = scale * weights if isinstance(weights, Tensor) else (scale * weights[0], weights[1])
    theory = simulate(x, attention, scaled, layers).hfc_lfc
    gamma = float(layer_exponent(attention[None], weights, scale=scale, accuracy=0.01).exponent[0])
    state = x
    for _ in range(layers):
        state = block(state)
        if isinstance(block, Layer) and block.norm_weight is None and block.mlp is None:
            state = state / state.norm()  # a linear layer: its scale says nothing and may overflow
    start, predicted, measured = (_log10(float(value)) for value in (theory[0], theory[-1], hfc_lfc_ratio(state)))
    return Draw(rung, mode, start, predicted, measured, gamma)


def _log10(ratio: float) -> float:
    """Bounded by what is more than rounding; a mean token of exactly zero counts as such."""
    return max(-ROUNDING, min(ROUNDING, math.log10(ratio) if ratio > 0 else -math.inf))


def ladder(seed: int, layers: int = LAYERS) -> Iterator[Draw]:
    """All rungs for one seed; X, eigenvalues, eigenvectors and everything added later are the same on each."""
    for mode in MODES:
        rng = torch.Generator().manual_seed(seed)

        def normal(*shape: int, rng: torch.Generator = rng) -> Tensor:
            return torch.randn(*shape, generator=rng, dtype=torch.float64)

        x, scores = normal(TOKENS, DIM), normal(TOKENS, TOKENS)
        query, key = normal(HEADS, DIM, DIM) / DIM**0.5, normal(HEADS, DIM, DIM) / DIM**0.5
        weight = torch.rand(DIM, generator=rng, dtype=torch.float64)
        bias, offset = CONSTANT * normal(DIM), CONSTANT * normal(DIM)
        up, down = normal(DIM, 4 * DIM) / DIM**0.5, normal(4 * DIM, DIM) / (4 * DIM) ** 0.5
        symmetric, general = (random_h(DIM, form, mode, torch.Generator().manual_seed(seed))
                              for form in ("symmetric", "general"))  # fmt: skip

        def follows(inner: Tensor, query: Tensor = query, key: Tensor = key) -> Tensor:
            return torch.softmax((inner @ query) @ (inner @ key).mT / DIM**0.5, -1)

        def mlp(state: Tensor, up: Tensor = up, down: Tensor = down, weight: Tensor = weight) -> Tensor:
            return gelu(layer_norm(state, (DIM,), weight) @ up) @ down

        even, frozen, split = doubly_stochastic(scores + scores.mT)[None], follows(x), split_heads(general, HEADS)
        rungs = (
            Layer(even, symmetric.mT[None]),
            Layer(even, general.mT[None]),
            Layer(frozen[:1], general.mT[None]),
            Layer(frozen, split),
            Layer(frozen, split, weight),
            Layer(frozen, split, weight, bias, offset),
            Layer(frozen, split, weight, bias, offset, mlp),
            Layer(follows, split, weight, bias, offset, mlp),
        )
        for rung, layer in zip(RUNGS, rungs, strict=True):
            yield layer.draw(rung, mode, x, layers)


def doubly_stochastic(scores: Float[Tensor, "token token"]) -> Float[Tensor, "token token"]:
    """Sinkhorn's limit of exp(scores): symmetric where the scores are, rows and columns sum to 1 (Sander et al. 2022).

    >>> a = doubly_stochastic(torch.tensor([[0.0, 1.0], [1.0, 3.0]], dtype=torch.float64))
    >>> bool(torch.allclose(a, a.mT)), [round(float(v), 6) for v in a.sum(0)]
    (True, [1.0, 1.0])
    """
    scale = torch.zeros_like(scores[0])
    for _ in range(500):  # the symmetric iteration: half a step keeps it from swinging
        scale = (scale - (scores + scale).logsumexp(-1)) / 2
    a = (scores + scale[:, None] + scale).exp()
    return a / a.sum(-1, keepdim=True)


def split_heads(h: Float[Tensor, "dim dim"], heads: int) -> Float[Tensor, "head dim dim"]:
    """`W_h` whose sum is Hᵀ, each head with its share of H's eigenvectors (footnote 2's split, with the inverse)."""
    values, vectors = torch.linalg.eig(h)
    left = torch.linalg.inv(vectors)
    order = values.real.argsort()
    parts = [vectors[:, rows] * values[rows] @ left[rows] for rows in order.split(len(order) // heads)]
    return torch.stack([part.real.mT for part in parts])
