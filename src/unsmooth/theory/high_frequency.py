"""The eigenvalue of a layer's high-frequency part that dominates, by a Krylov search over all inputs at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from unsmooth.theory.krylov import Goal, Ritz, dominating
from unsmooth.theory.low_frequency import Whole
from unsmooth.theory.matrices import HeadMatrices
from unsmooth.theory.operator import HeadMaps, high_frequency, later_tokens, random_start

_FAR_FROM_NORMAL = 30.0  # the condition of an eigenvalue above which float32 may not be enough; models have 1 to 3
_BASIS_BYTES = {"cpu": 2**28, "cuda": 2**33}


@dataclass(frozen=True)
class SeenLayer:
    """A layer's matrices (0 where a token is left out), their diagonals if they are causal, and the kept tokens."""

    matrices: HeadMatrices
    own: Float[Tensor, "batch head token"] | None
    mask: Bool[Tensor, "batch token"] | None = None

    def inputs(self, rows: Int[Tensor, " batch"] | None) -> SeenLayer:
        """Of some inputs; a causal layer's matrices are not needed again."""
        if rows is None:
            return self
        rows = rows.to(self.matrices.device)
        matrices = self.matrices if self.own is not None else self.matrices.inputs(rows)
        parts = (None if part is None else part[rows] for part in (self.own, self.mask))
        return SeenLayer(matrices, *parts)


@dataclass(frozen=True)
class Search:
    """How long and how exactly is searched; `layer_exponent` says what each means."""

    subspace: int = 24
    tol: float | None = None
    accuracy: float | None = None
    max_products: int = 600


def dominating_hfc(
    layer: SeenLayer, maps: HeadMaps, goals: Sequence[Goal], tol: float, search: Search, whole: Whole | None
) -> list[Ritz]:
    """Of each goal; once more in float64 where the map is too far from normal for float32 to tell its eigenvalues."""
    if layer.own is not None and whole is None and maps.width <= search.subspace:
        return _of_blocks(layer.own, later_tokens(layer.own, layer.mask), maps, goals)
    found = _hfc(layer, maps, goals, tol, search, whole)
    rough = [~ritz.converged & (ritz.condition > _FAR_FROM_NORMAL) for ritz in found]
    if maps.inner.dtype == torch.float64 or not bool(torch.stack(rough).any()):
        return found
    wide = HeadMaps(maps.inner.double(), None if maps.outer is None else maps.outer.double(), maps.heads, maps.dim)
    again = _hfc(
        SeenLayer(
            layer.matrices.each(_double, torch.float64), None if layer.own is None else layer.own.double(), layer.mask
        ),
        wide, goals, tol, search, None if whole is None else Whole(whole.after, whole.steps.double()),
    )  # fmt: skip
    return [_chosen(mask, *pair) for mask, *pair in zip(rough, again, found, strict=True)]


def _of_blocks(
    own: Float[Tensor, "batch head token"], later: Bool[Tensor, "batch token"], maps: HeadMaps, goals: Sequence[Goal]
) -> list[Ritz]:
    """Of all eigenvalues of every token's block, where these are no larger than the space that a search would span.

    A search looks at all blocks together, and may miss one of which its start has little.
    """
    each = torch.eye(maps.heads).to(own)[..., None].expand(-1, -1, maps.width)
    single = maps.own_product(each, torch.eye(maps.width).to(own).expand(maps.heads, -1, -1))
    blocks = torch.einsum("bht,hij->btij", own.double(), single.double()).cpu()
    theta = torch.linalg.eigvals(blocks).flatten(1)
    zeros, left_out = theta.real.new_zeros(len(theta)), ~later.cpu().repeat_interleave(maps.width, -1)
    sure, found = torch.ones_like(zeros, dtype=torch.bool), []
    for goal in goals:
        scores = goal.score(theta, torch.arange(len(theta))).masked_fill(left_out, -torch.inf)
        best = theta.gather(-1, scores.argmax(-1, keepdim=True))[:, 0]
        found.append(Ritz(best, zeros, best.abs(), torch.ones_like(zeros), sure, 0))
    return found


def _chosen(mask: Bool[Tensor, " batch"], better: Ritz, found: Ritz) -> Ritz:
    """`better` where the mask says so."""
    names = ("value", "residual", "norm", "condition", "converged")
    parts = {name: torch.where(mask, getattr(better, name), getattr(found, name)) for name in names}
    return Ritz(**parts, products=found.products + better.products)


def _double(a: Float[Tensor, "*batch query token"], _: slice) -> Float[Tensor, "*batch query token"]:
    """Rows that sum to 1 in float64 too."""
    return a.double() / a.sum(-1, keepdim=True, dtype=torch.float64).clamp_min(torch.finfo(torch.float32).tiny)


def _hfc(
    layer: SeenLayer, maps: HeadMaps, goals: Sequence[Goal], tol: float, search: Search, whole: Whole | None
) -> list[Ritz]:
    count, _, token, _ = layer.matrices.shape
    causal = layer.own is not None
    if layer.own is not None:
        later = later_tokens(layer.own, layer.mask)
        count, layer = len(later), SeenLayer(layer.matrices, torch.where(later[:, None], layer.own, 0), later)
    work = _AtWork(layer)

    def apply(vectors: Tensor, rows: Int[Tensor, " batch"] | None) -> Tensor:
        state, some = vectors.view(-1, token, maps.width), work.inputs(rows)
        own = some.own
        found = maps.product(some.matrices, state, some.mask) if own is None else maps.own_product(own, state)
        if whole is None:
            return found.reshape(len(vectors), -1)
        # the residual hands on what rounding left of a mean, and the search, which scales up what is new, lets it grow
        return project(whole(state, found, rows).reshape(len(vectors), -1), rows)

    def project(vectors: Tensor, rows: Int[Tensor, " batch"] | None) -> Tensor:
        state, mask = vectors.view(-1, token, maps.width), work.inputs(rows).mask
        if not causal or mask is None:
            return high_frequency(state, mask).reshape(len(vectors), -1)
        return torch.where(mask[..., None], state, 0).reshape(len(vectors), -1)

    start = project(random_start(count, token, maps.width, maps.inner).reshape(count, -1), None)
    return dominating(
        apply,
        start,
        goals,
        subspace=min(search.subspace, (token - 1) * maps.width),
        tol=tol,
        max_products=search.max_products,
        project=project,
    )


class _AtWork:
    """The inputs still searched, which change at restarts only: their matrices are not copied for every product."""

    def __init__(self, layer: SeenLayer) -> None:
        self.layer, self.some = layer, layer
        self.rows: Tensor | None = None

    def inputs(self, rows: Tensor | None) -> SeenLayer:
        if rows is not self.rows:
            self.rows, self.some = rows, self.layer.inputs(rows)
        return self.some


def inputs_at_once(matrices: HeadMatrices, maps: HeadMaps, subspace: int) -> int:
    """As many as have room for the basis of their search."""
    per_input = (2 * subspace + 2) * matrices.shape[-1] * maps.width * maps.inner.element_size()
    return max(1, _BASIS_BYTES.get(matrices.device.type, 2**28) // per_input)
