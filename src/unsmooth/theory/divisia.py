"""Who changed ln HFC/LFC, exactly: the logarithmic-mean Divisia decomposition (docs/theory.md, section 7).

A step adds parts to the stream, `X' = X + Σ_i U_i`. For any linear projection Π

    ‖ΠX'‖² − ‖ΠX‖² = Σ_i ⟨ΠU_i, Π(X + X')⟩        ln‖ΠX'‖² − ln‖ΠX‖² = Σ_i ⟨U_i, ΠS⟩ / L,    S = X + X'

with L the logarithmic mean of both squares. Half the line of HFC less half the line of LFC is the change of
ln HFC/LFC, so that every part's share is one inner product with a fixed matrix, `⟨U_i, G⟩`: shares of tokens, heads
and eigen-directions follow by linearity, and nothing is left over.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from unsmooth.theory.folding import Folded, output_statistics, statistics, values_of
from unsmooth.theory.matrices import HeadMatrices
from unsmooth.theory.normality import settled

Mask = Bool[Tensor, "batch token"] | None


def logarithmic_mean(a: Float[Tensor, "*shape"], b: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """`(b − a) / (ln b − ln a)`, and `a` where both are equal.

    >>> logarithmic_mean(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 4.0]))
    tensor([1.0000, 2.8854])
    """
    distance = torch.log1p((b - a) / a)
    near = distance.abs() < 1e-5  # (e^x − 1)/x = 1 + x/2 + x²/6 + …
    safe = torch.where(near, 1.0, distance)
    return torch.where(near, a * (1 + distance / 2 + distance.square() / 6), (b - a) / safe)


@dataclass(frozen=True)
class State:
    """A state of the stream by its frequencies, in float64: deviations from the mean of the kept tokens, and the mean.

    Deviations are 0 at tokens that are left out. Nothing is computed from differences of large numbers later, so a
    nearly collapsed state is as exact as any other.
    """

    high: Float[Tensor, "batch token dim"]
    mean: Float[Tensor, "batch dim"]
    squares: Float[Tensor, "batch token"]  # of the deviations
    kept: Float[Tensor, "batch token"] | None  # None: all of them

    @classmethod
    def of(cls, x: Float[Tensor, "batch token dim"], mask: Mask = None) -> State:
        """The frequencies of features, for the tokens that the mask keeps."""
        kept = None if mask is None else mask.to(torch.float64)
        x = x if mask is None else torch.where(mask[..., None], x, 0)  # padding may be NaN
        count = x.shape[-2] if kept is None else kept.sum(-1, keepdim=True)
        mean = x.sum(-2, dtype=torch.float64) / count
        high = x - mean[:, None]
        high = high if kept is None else high.mul_(kept[..., None])
        left = high.sum(-2) / count  # a mean far from 0 is rounded: deviations must sum to 0 all the same
        high.sub_(left[:, None] if kept is None else left[:, None] * kept[..., None])
        return cls(high, mean + left, torch.linalg.vector_norm(high, dim=-1).square(), kept)

    @property
    def sizes(self) -> Float[Tensor, "2 batch"]:
        """‖HFC‖² and ‖LFC‖²."""
        count = self.high.shape[1] if self.kept is None else self.kept.sum(-1)
        return torch.stack([self.squares.sum(-1), count * self.mean.square().sum(-1)])

    @property
    def ratio(self) -> Float[Tensor, " batch"]:
        """ln HFC/LFC."""
        high, low = self.sizes.log()
        return (high - low) / 2


class Step:
    """From one state to the next: what each part has of the change of ln ‖HFC‖, and of −ln ‖LFC‖.

    >>> x = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]], dtype=torch.float64)
    >>> u = torch.tensor([[[0.5, 0.0], [0.2, 0.0]]], dtype=torch.float64)
    >>> before, after = State.of(x), State.of(x + u)
    >>> bool(torch.isclose(Step(before, after).shares(u).sum(), after.ratio - before.ratio))
    True
    """

    def __init__(self, before: State, after: State) -> None:
        self.before, self.after = before, after
        self.scale = 0.5 / logarithmic_mean(before.sizes, after.sizes)  # (2, batch)
        self.low = -(before.mean + after.mean) * self.scale[1][:, None]

    def total(self) -> Float[Tensor, "2 batch token"]:
        """The shares of all parts together, by token: what was written to each."""
        before, after = self.before, self.after
        moved = after.mean - before.mean
        along = torch.einsum("bnd,bd->bn", before.high, moved) + torch.einsum("bnd,bd->bn", after.high, moved)
        high = (after.squares - before.squares + along) * self.scale[0][:, None]
        low = torch.einsum("bnd,bd->bn", after.high, self.low) - torch.einsum("bnd,bd->bn", before.high, self.low)
        low = low + (moved * self.low).sum(-1, keepdim=True)
        return torch.stack([high, low if after.kept is None else low * after.kept])

    def shares(self, part: Float[Tensor, "batch token dim"]) -> Float[Tensor, "2 batch token"]:
        """The share of what one part writes to each token."""
        high = (part * (self.before.high + self.after.high)).sum(-1) * self.scale[0][:, None]
        low = torch.einsum("bnd,bd->bn", part, self.low)
        return torch.stack([high, low]) * (1 if self.after.kept is None else self.after.kept)

    def project(self, w_proj: Float[Tensor, "head key dim"]) -> Callable[[Tensor], Tensor]:
        """Shares by head and token of `U_h = mixed_h W_proj^h`, as a function of `mixed` (batch, head, token, key).

        G is carried back through W_proj, at the cost of one projection for all heads.
        """
        heads, key, dim = w_proj.shape
        back, dtype = w_proj.reshape(heads * key, dim).mT, w_proj.dtype
        # scaled before it is cast: a massive token's square may be no float32
        size = self.scale[0].sqrt()[:, None, None]
        sums = (self.before.high + self.after.high) * size
        high = (sums.to(dtype) @ back).unflatten(-1, (heads, key)).transpose(1, 2)
        low = (self.low.to(dtype) @ back).unflatten(-1, (heads, key))
        kept = None if self.after.kept is None else self.after.kept[:, None]

        def shares(mixed: Float[Tensor, "batch head token key"]) -> Float[Tensor, "2 batch head token"]:
            through_high = (mixed * high).sum(-1).double() * size
            through_low = torch.einsum("bhnk,bhk->bhn", mixed, low).double()
            return torch.stack([through_high, through_low if kept is None else through_low * kept])

        return shares


def spectral_side(
    w_v: Float[Tensor, "head dim key"], w_proj: Float[Tensor, "head key dim"]
) -> Float[Tensor, "head key key"]:
    """N_h with `W_V N W_proj` the part of `W_h = W_V W_proj` on the eigenvalues with Re λ < 0 (float64).

    The eigenvalues of W_h that are not 0 are those of `W_proj W_V = R Λ R⁻¹`; N sums `r_j l_j` over the negative side
    and `I − N` over the rest, so that both parts of every head sum to the head whatever its normality.
    """
    values, vectors = torch.linalg.eig((w_proj.double() @ w_v.double()).cpu())
    rows = zip(values, vectors, w_v, w_proj, strict=True)
    left = torch.stack([settled(*row).real < 0 for row in rows])  # what is 0 to rounding has no side
    chosen = vectors * left[:, None, :]
    return torch.linalg.solve(vectors.mT, chosen.mT).mT.real


def heads_on_deviations(
    folded: Folded, x: Float[Tensor, "batch token dim"], a: HeadMatrices, kept: Mask
) -> Float[Tensor, "batch head token key"]:
    """`A_h (Z − 1z̄) W_V^h` of every head; constants (norm bias, b_v) cancel in the deviations."""
    dtype = folded.w_v.dtype
    x, a = x.to(dtype), a.widened(kept).prepared(dtype, kept)
    x = x if kept is None else torch.where(kept[..., None], x, 0)
    d = statistics(folded.norm, x)
    values = values_of(x * d[..., None], folded)
    if kept is None:
        high = values - values.mean(-2, keepdim=True)
    else:
        inside = kept[:, None, :, None]
        high = (values - (values * inside).sum(-2, keepdim=True) / kept.sum(-1)[:, None, None, None]) * inside
    mixed = a.mix(high)
    if folded.out_norm is None:
        return mixed
    d_out = output_statistics(a.mix(values), folded)
    assert d_out is not None
    return mixed * d_out[:, None, :, None]
