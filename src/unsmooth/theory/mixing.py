"""How attention mixes the values of a layer: one look at every matrix, after which only a Krylov search needs any."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from unsmooth.theory.folding import Folded, linear_part, values_of
from unsmooth.theory.matrices import HeadMatrices
from unsmooth.theory.operator import high_frequency
from unsmooth.theory.stochastic import check_rows_sum, is_causal

Mask = Bool[Tensor, "batch token"] | None
Heads = Float[Tensor, "batch head token key"]


@dataclass(frozen=True)
class Mixing:
    """What the matrices do to this input's values, and what is known of them beside that."""

    values: Heads  # V_h = D X W_V^h
    mixed: Heads  # A_h V_h
    flat: Heads  # A_h X W_V^h: without the norm's statistics, which may be replaced by their mean
    alpha: Float[Tensor, "batch head"]  # ⟨PZ, P A_h Z⟩ / ‖PZ‖², what A_h leaves of the deviations of Z = D X
    path: Float[Tensor, "batch head token"]  # π_h, the mean row
    own: Float[Tensor, "batch head token"] | None  # the diagonals of causal matrices, None for others
    entropy: Float[Tensor, "batch head"]
    mask: Mask

    @property
    def mean_field(self) -> Heads:
        """`(α_h P + 1π_hᵀ) V_h`: what A_h gives the mean token, HFC times one number (docs/theory.md, section 7)."""
        field = self.alpha[..., None, None] * self._high(self.values) + self.path[:, :, None] @ self.values
        return self._kept(field)

    @property
    def mean_path(self) -> Heads:
        """`11ᵀ/n V_h`: attention that looks at all kept tokens alike leaves the mean path alone."""
        return self._kept(self.values - self._high(self.values))

    def _high(self, values: Heads) -> Heads:
        mask = None if self.mask is None else self.mask[:, None].expand(values.shape[:-1])
        return high_frequency(values.flatten(0, 1), None if mask is None else mask.flatten(0, 1)).view_as(values)

    def _kept(self, values: Heads) -> Heads:
        return values if self.mask is None else torch.where(self.mask[:, None, :, None], values, 0)


def mixing_of(
    matrices: HeadMatrices,
    x: Float[Tensor, "batch token dim"],
    d: Float[Tensor, "batch token"],
    folded: Folded,
    mask: Mask = None,
) -> Mixing:
    """Every part of A once: x and A are 0 where the mask leaves a token out. WeightsError unless A·1 = 1."""
    batch, heads, token, _ = matrices.shape
    scaled = x * d[..., None]
    values = values_of(scaled, folded)
    both = torch.cat([values, values_of(x, folded)], -1)
    mixed = torch.empty_like(both)
    high = high_frequency(scaled if folded.norm is None else linear_part(folded.norm, scaled), mask)
    size = high.square().sum((-2, -1))
    overlap, column = x.new_zeros(batch, heads), x.new_zeros(batch, heads, token)
    own, entropy = x.new_zeros(batch, heads, token), torch.zeros(batch, heads, dtype=torch.float64, device=x.device)
    causal, gram, rows = True, None, slice(0)
    for some, queries, a in matrices.parts():
        check_rows_sum(a) if mask is None else check_rows_sum(a, mask[:, None, queries, None], mask[:, None, None])
        if gram is None or queries != rows:  # ⟨PZ, A_h Z⟩ = ⟨A_h, PZ (PZ)ᵀ⟩, as A_h 1 = 1
            gram, rows = high[:, queries] @ high.mT, queries
        mixed[:, some, queries] = a @ both[:, some]
        overlap[:, some] += (a.flatten(2) @ gram.flatten(1)[..., None])[..., 0]
        column[:, some] += a.sum(-2)
        causal = causal and is_causal(a, queries.start)
        own[:, some, queries] = a.diagonal(queries.start, -2, -1)
        entropy[:, some] -= torch.xlogy(a, a).sum((-2, -1), dtype=torch.float64)
    count = x.new_full((batch,), token) if mask is None else mask.sum(-1)
    mixed, flat = mixed.chunk(2, -1)
    alpha = overlap / torch.where(size > 0, size, 1)[:, None]
    path = column / count[:, None, None]
    return Mixing(values, mixed, flat, alpha, path, own if causal else None, entropy / count[:, None], mask)
