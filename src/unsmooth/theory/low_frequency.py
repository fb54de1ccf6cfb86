"""ρ_L of a layer, its growth on the mean token: one d×d matrix, no data (docs/theory.md, section 4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Complex, Float, Int
from torch import Tensor

from unsmooth.theory.krylov import Goal, Ritz, Score, dominating
from unsmooth.theory.operator import HeadMaps, select

Which = Literal["modulus", "rightmost"]
Linear = Callable[[Float[Tensor, "*rows dim"]], Float[Tensor, "*rows dim"]]
_DENSE_UP_TO = 384  # below this, all eigenvalues of a d×d matrix cost less than a Krylov search
_SEARCH_LONGER, _LONG = 1024, 4800  # a product with a d×d matrix is cheap: so many before all eigenvalues are found


def growth(theta: Complex[Tensor, " batch"], steps: Float[Tensor, " batch"], which: Which) -> Float[Tensor, " batch"]:
    """`|1 + sθ|`, or `Re θ` for the vanishing step."""
    if which == "rightmost":
        return theta.real.broadcast_to(torch.broadcast_shapes(theta.shape, steps.shape))
    return (1 + steps * theta).abs()


def with_null_space(theta: Tensor, steps: Tensor, which: Which, maps: HeadMaps) -> Tensor:
    """`growth`, of the eigenvalue 0 too where the map has one that its twin on fewer columns lost."""
    found = growth(theta, steps, which)
    return torch.maximum(found, growth(torch.zeros_like(theta), steps, which)) if maps.has_null_space else found


def lfc_growths(
    maps: HeadMaps,
    steps: Float[Tensor, " batch"],
    kinds: Sequence[Which],
    max_products: int = 600,
    spectrum: Complex[Tensor, " dim"] | None = None,
) -> list[Float[Tensor, " batch"]]:
    """ρ_L of each kind for every step size: one d×d eigenproblem, no data; one Krylov search where d is large."""
    if spectrum is None:
        total = maps.total.detach().double()
        if total.shape[0] > _DENSE_UP_TO:
            large = total.shape[0] > _SEARCH_LONGER  # where all eigenvalues would take minutes
            found = _lfc_search(total, steps, kinds, _LONG if large else max_products, 1e-6 if large else 1e-9)
            if all(bool(ritz.converged.all()) for ritz in found):
                return [with_null_space(ritz.value, steps, kind, maps) for kind, ritz in zip(kinds, found, strict=True)]
        spectrum = torch.linalg.eigvals(total.cpu())
        if maps.has_null_space:
            spectrum = torch.cat([spectrum, spectrum.new_zeros(1)])
    return [growth(spectrum[None], steps[:, None], kind).amax(-1) for kind in kinds]


def _lfc_search(total: Tensor, steps: Tensor, kinds: Sequence[Which], max_products: int, tol: float) -> list[Ritz]:
    generator = torch.Generator().manual_seed(total.shape[0])
    start = torch.randn(total.shape[0], generator=generator, dtype=torch.float64).to(total)
    return dominating(
        lambda vectors, rows: vectors @ total,
        start.expand(len(steps), -1),
        [Goal(score_of(kind, steps)) for kind in kinds],
        subspace=48,
        tol=tol,
        max_products=max_products,
    )


@dataclass(frozen=True)
class Whole:
    """`Y ↦ (Y + s T Y) M − Y`: a map M after the sum acts on the residual too, so no step can be divided out."""

    after: Linear
    steps: Float[Tensor, " batch"]

    def rows(self, chosen: Int[Tensor, " batch"]) -> Whole:
        """Of some inputs."""
        return Whole(self.after, self.steps[chosen.to(self.steps.device)])

    def __call__(self, state: Tensor, product: Tensor, rows: Int[Tensor, " batch"] | None) -> Tensor:
        return self.after(state + select(self.steps, rows)[:, None, None] * product) - state


def whole_lfc(maps: HeadMaps, steps: Tensor, whole: Whole, spectrum: Tensor | None) -> Float[Tensor, " batch"]:
    """ρ_L with a map after the sum."""
    if spectrum is not None:
        return growth(spectrum[None], torch.ones_like(steps)[:, None], "modulus").amax(-1)
    total, eye = maps.total.detach(), torch.eye(maps.dim).to(maps.inner)
    found = {
        step: torch.linalg.eigvals(whole.after(eye + step * total).double().cpu()).abs().max()
        for step in set(steps.tolist())
    }
    return torch.stack([found[step] for step in steps.tolist()])


def score_of(which: Which, steps: Float[Tensor, " batch"]) -> Score:
    """The growth by which a search ranks eigenvalues."""

    def score(theta: Complex[Tensor, "batch ritz"], rows: Int[Tensor, " batch"]) -> Float[Tensor, "batch ritz"]:
        return growth(theta, steps[rows][:, None], which)

    return score
