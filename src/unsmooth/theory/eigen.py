"""Eigenvalues with eigenvectors and their condition number: what a limit is made of."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from unsmooth.errors import WeightsError
from unsmooth.metrics.dense import require_real
from unsmooth.theory.stochastic import check_row_stochastic, quotient


@dataclass(frozen=True)
class Eigen:
    """`M vectors = vectors · diag(values)`, unit columns."""

    values: Complex[Tensor, " size"]
    vectors: Complex[Tensor, "size size"]

    @property
    def condition(self) -> float:
        """`κ₂` of the eigenvector matrix: 1 for a normal matrix, infinite for a defective one."""
        sigma = torch.linalg.svdvals(self.vectors)
        return float(sigma[0] / sigma[-1])


def eigen_of_h(h: Float[Tensor, "dim dim"]) -> Eigen:
    """H's eigenpairs in complex128."""
    require_real(h, "h")
    if h.ndim != 2 or h.shape[0] != h.shape[1]:
        raise WeightsError(f"h must be (dim, dim), got shape {tuple(h.shape)}")
    if not bool(torch.isfinite(h).all()):
        raise WeightsError("h holds NaN or infinity; it has no spectrum then")
    h = h.detach().cpu().double()
    if bool((h == h.mT).all()):
        values, vectors = torch.linalg.eigh(h)
        return Eigen(values.to(torch.complex128), vectors.to(torch.complex128))
    return Eigen(*torch.linalg.eig(h))


def eigen_of_attention(a: Float[Tensor, "token token"]) -> Eigen:
    """A's eigenpairs, real parts ascending, the last one exactly `(1, 1/√n)`.

    With `A U = U [[1, r], [0, C]]` and `C y = λ y`, the vector `U [α; y]`, `α = r·y / (λ − 1)`, belongs to λ.
    """
    require_real(a, "a")
    if a.ndim != 2:
        raise WeightsError(f"a must be one (tokens, tokens) matrix, got shape {tuple(a.shape)}")
    check_row_stochastic(a)
    a = a.detach().cpu().double()
    u, b = quotient(a)
    values, inner = torch.linalg.eig(b[1:, 1:])
    order = values.real.argsort(stable=True)
    values, inner = values[order], inner[:, order]
    coupling = b[0, 1:].to(inner.dtype) @ inner
    distance = values - 1
    # the eigenvalue 1 of a row-stochastic matrix is semisimple, so the coupling vanishes where the distance does
    reducible = distance.abs() < 1e-12
    alpha = torch.where(reducible, 0, coupling / torch.where(reducible, 1, distance))
    vectors = u.to(inner.dtype) @ torch.cat([alpha[None], inner])
    vectors = vectors / vectors.norm(dim=0)
    perron = torch.full((a.shape[-1], 1), a.shape[-1] ** -0.5, dtype=vectors.dtype)
    return Eigen(torch.cat([values, values.new_ones(1)]), torch.cat([vectors, perron], dim=1))
