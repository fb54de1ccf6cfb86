"""How much of a feature lies along an eigenvector: the spectral projection, which for a non-normal H is no cosine."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Complex, Float
from torch import Tensor


@dataclass(frozen=True)
class SpectralProjector:
    """`P = right · leftᵀ` on column vectors: the identity on the chosen eigenvectors, 0 on all others."""

    right: Float[Tensor, "dim rank"]
    left: Float[Tensor, "dim rank"]

    def share(self, x: Float[Tensor, "*batch token dim"]) -> Float[Tensor, "*batch token"]:
        """`|P x| / |x|` of every token: above 1 where parts along other eigenvectors cancel most of it."""
        length = x.norm(dim=-1)
        part = ((x @ self.left.to(x)) @ self.right.to(x).mT).norm(dim=-1)
        return part / torch.where(length > 0, length, 1)


def spectral_projector(
    values: Complex[Tensor, " dim"], vectors: Complex[Tensor, "dim dim"], index: int
) -> SpectralProjector:
    """The projector of eigenvalue `index` of a real matrix; a complex one brings its conjugate, an equal one joins.

    >>> h = torch.tensor([[2.0, 3.0], [0.0, 1.0]], dtype=torch.float64)
    >>> p = spectral_projector(*torch.linalg.eig(h), 0)
    >>> (p.right @ p.left.mT + 0.0).round(decimals=6).tolist()
    [[1.0, 3.0], [0.0, 0.0]]
    """
    near = 1e-9 * values.abs().max()
    chosen: Bool[Tensor, " dim"] = ((values - values[index]).abs() <= near) | (
        (values - values[index].conj()).abs() <= near
    )
    right = vectors[:, chosen]
    unit = torch.eye(len(values), dtype=vectors.dtype)[:, chosen]
    left = torch.linalg.solve_ex(vectors.mT, unit).result  # columns: the rows of V⁻¹
    # the sum over a set closed under conjugation is real: Re(V_c L_cᵀ)
    return SpectralProjector(torch.cat([right.real, right.imag], -1), torch.cat([left.real, -left.imag], -1))
