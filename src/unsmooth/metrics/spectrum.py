"""Singular values of a tall or wide matrix, from the Gram matrix of its smaller side, in float64.

A Gram matrix squares the singular values, so that rounding of size ε·σ₁² hides every σ < √ε·σ₁ = 1e-8·σ₁.
That is harmless unless σ₁ stands alone, which is where oversmoothing ends: there the leading pair
(σ₁, u₁, v₁) is split off first, and the Gram matrix is that of the rest, with rounding ε·σ₂².
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from unsmooth.metrics import determinants, tridiagonal
from unsmooth.metrics.kernels.eigenvalues import LARGEST, cuda_eigenvalues
from unsmooth.metrics.openblas import openblas
from unsmooth.metrics.workers import even_slices, spread

# Split off the leading pair when the rest holds less than this part of ‖X‖_F². What the split neglects
# changes the other singular values by less than this part of themselves.
NEARLY_RANK_ONE = 1e-6
GRAM_BLOCK = 40


@dataclass(frozen=True)
class EigenProblem:
    """The squares of the singular values: the eigenvalues of `gram`, and `leading` (0 if nothing was split off)."""

    gram: Float[Tensor, "*batch side side"]
    leading: Float[Tensor, "*batch"]

    def singular_values(self) -> Float[Tensor, "*batch value"]:
        """All singular values in descending order; NaN for a sample whose features are not finite."""
        return self.from_eigenvalues(eigenvalues(self.gram))

    def root_sums(self, rank: Float[Tensor, "*batch"]) -> tuple[Float[Tensor, "*batch"], Float[Tensor, "*batch"]]:
        """Σσ and Σσ log σ by determinants, `rank` being a bound on the number of singular values that are not zero."""
        side = self.gram.shape[-1]
        return self.from_root_sums(*root_sums(self.gram.reshape(-1, side, side), rank.flatten()))

    def from_root_sums(self, roots: Float[Tensor, " matrix"], logs: Float[Tensor, " matrix"]) -> tuple[Tensor, Tensor]:
        """Put Σ√λ and Σ√λ log λ of `gram` and the leading one together."""
        leading = safe_sqrt(self.leading)
        first = leading * torch.where(leading > 0, leading, 1.0).log()
        return roots.reshape(leading.shape) + leading, logs.reshape(leading.shape) / 2 + first

    @property
    def by_determinants(self) -> bool:
        """Whether those sums are quicker found than singular values: on a GPU where our kernel does not reach."""
        if self.gram.requires_grad:
            return False
        side = self.gram.shape[-1]
        return side > LARGEST if self.gram.is_cuda else self.gram.device.type == "cpu" and tridiagonal.is_quicker(side)

    def from_eigenvalues(self, values: Float[Tensor, "*batch side"]) -> Float[Tensor, "*batch value"]:
        """Put the eigenvalues of `gram` (any order) and the leading one together.

        Whenever a leading pair was split off, `gram` has an eigenvalue 0 in its place, so that the
        number of values stays min(tokens, dim).
        """
        ordered = values.sort(-1, descending=True).values
        first = torch.where(self.leading > 0, self.leading, ordered[..., 0])
        split = torch.cat([first[..., None], ordered[..., :-1]], -1)
        squares = torch.where((self.leading > 0)[..., None], split, ordered)
        return safe_sqrt(squares)


def eigen_problem(
    x: Callable[[], Float[Tensor, "*batch token dim"]],
    product_of_x: Callable[[], Float[Tensor, "*batch side side"]],
    plain: bool,
) -> EigenProblem:
    """The eigenproblem behind the singular values of `x` (float64), whose Gram matrix is at hand.

    `plain`: on a CPU and without a gradient.
    """
    if not plain:
        # Asking whether to split would wait for the device; dividing it out of a graph costs a pass.
        return EigenProblem(*_split_gram(x()))
    product = product_of_x()
    trace = product.diagonal(dim1=-2, dim2=-1).sum(-1)
    # Σσ⁴/(Σσ²)² ≥ 1 − 2ε is necessary for Σ_{i>1} σ² ≤ ε Σσ².
    lone = torch.linalg.vector_norm(product, dim=(-2, -1)).square() >= (1 - 2 * NEARLY_RANK_ONE) * trace.square()
    if bool((lone & (trace > 0)).any()):
        return EigenProblem(*_split_gram(x()))
    return EigenProblem(product, torch.zeros_like(trace))


def _split_gram(x: Float[Tensor, "*batch token dim"]) -> tuple[Tensor, Tensor]:
    rest, leading = split_leading(x)
    return gram(rest), leading


def split_leading(
    x: Float[Tensor, "*batch token dim"],
) -> tuple[Float[Tensor, "*batch token dim"], Float[Tensor, "*batch"]]:
    """(I − uuᵀ) X (I − vvᵀ) and σ₁² where X is nearly of rank one; X and 0 elsewhere.

    v is the largest token after one power step: near rank one both are already exact to NEARLY_RANK_ONE.
    u and v are constants for the gradient, which is exact to first order as for any singular pair.
    """
    fixed = x.detach()
    largest = fixed.square().sum(-1).argmax(-1)[..., None, None]
    v = _unit(torch.take_along_dim(fixed, largest, dim=-2))
    v = _unit((v @ fixed.mT) @ fixed)
    u = _unit(v @ fixed.mT)
    along = x @ v.mT  # X v
    across = u @ x - (u @ along) * v  # uᵀX (I − vvᵀ)
    leading = along.square().sum((-2, -1)) + across.square().sum((-2, -1))
    total = fixed.square().sum((-2, -1))
    lone = (total - leading.detach() <= NEARLY_RANK_ONE * total) & (total > 0)
    part = along @ v + u.mT @ across
    return x - torch.where(lone[..., None, None], part, 0.0), torch.where(lone, leading, 0.0)


def gram(x: Float[Tensor, "*batch token dim"]) -> Float[Tensor, "*batch side side"]:
    """XXᵀ or XᵀX, whichever is smaller."""
    rows = x if x.shape[-2] <= x.shape[-1] else x.mT
    return symmetric_product(rows)


def symmetric_product(rows: Float[Tensor, "*batch side dim"]) -> Float[Tensor, "*batch side side"]:
    """RRᵀ in float64."""
    if rows.is_cuda or rows.requires_grad:
        return rows @ rows.mT
    # torch has no product that knows its result is symmetric, which saves half of the work.
    if rows.device.type == "cpu" and (blas := openblas()) is not None:
        with blas.threads(torch.get_num_threads()), np.errstate(all="ignore"):  # NaN is told of elsewhere
            held = rows.numpy()
            return torch.from_numpy(held @ held.swapaxes(-1, -2))
    side = rows.shape[-2]
    step = max(GRAM_BLOCK, -(-side // 8))
    product = rows.new_empty(*rows.shape[:-1], side)
    for start in range(0, side, step):
        stop = min(start + step, side)
        block = rows[..., start:, :] @ rows[..., start:stop, :].mT
        product[..., start:, start:stop] = block
        product[..., start:stop, stop:] = block[..., stop - start :, :].mT
    return product


def root_sums(
    gram: Float[Tensor, "matrix side side"], rank: Float[Tensor, " matrix"]
) -> tuple[Float[Tensor, " matrix"], Float[Tensor, " matrix"]]:
    """Σ√λ and Σ√λ log λ, of which `rank` bounds the number that are not zero, by the quickest way for this size."""
    if gram.device.type == "cpu" and tridiagonal.is_quicker(gram.shape[-1]):
        return tridiagonal.root_sums(gram, rank)
    return determinants.root_sums(gram, rank)


def eigenvalues(matrix: Float[Tensor, "*batch side side"]) -> Float[Tensor, "*batch side"]:
    """Eigenvalues of positive semidefinite matrices (lower triangles); NaN where a matrix is not finite.

    On a GPU by the kernel of cuda_eigenvalues, which does not wait for the device. Above its 512 rows torch.linalg is
    quick as well, and waits; below, where torch cannot compile the kernel, the CPU's threads are quicker than that.
    """
    if matrix.is_cuda and not matrix.requires_grad:
        flat = matrix.flatten(0, -3) if matrix.ndim > 2 else matrix[None]
        found = cuda_eigenvalues(flat)
        if found is None and flat.shape[-1] <= LARGEST:
            host = flat.cpu()
            parts = even_slices(len(host), 4 * torch.get_num_threads())
            found = torch.cat(spread(lapack_eigenvalues, [host[rows] for rows in parts])).to(matrix.device)
        return (lapack_eigenvalues(flat) if found is None else found).reshape(matrix.shape[:-1])
    return lapack_eigenvalues(matrix)


def lapack_eigenvalues(matrix: Float[Tensor, "*batch side side"]) -> Float[Tensor, "*batch side"]:
    """The same by torch.linalg, which raises an error on NaN."""
    finite = matrix.detach().diagonal(dim1=-2, dim2=-1).sum(-1).isfinite()
    if not bool(finite.all()):
        values = lapack_eigenvalues(torch.where(finite[..., None, None], matrix, 0.0))
        return torch.where(finite[..., None], values, torch.nan)
    # LAPACK wants columns in a row: the transpose's upper triangle is the lower one without a transposing copy.
    return torch.linalg.eigvalsh(matrix.mT, UPLO="U")


def safe_sqrt(x: Tensor) -> Tensor:
    """√x with √x = 0 and gradient 0 where x ≤ 0 (a rounding error of a zero); NaN stays."""
    above = ~(x <= 0)
    return torch.where(above, torch.where(above, x, 1.0).sqrt(), 0.0)


def _unit(row: Float[Tensor, "*batch 1 dim"]) -> Float[Tensor, "*batch 1 dim"]:
    norm = torch.linalg.vector_norm(row, dim=-1, keepdim=True)
    return row / torch.where(norm > 0, norm, 1.0)
