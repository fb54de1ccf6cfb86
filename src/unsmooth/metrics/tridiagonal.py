"""Σ√λ and Σ√λ log λ of many small positive semidefinite matrices on a CPU: tridiagonal form, then determinants.

More than half of the time of `eigvalsh` goes into the eigenvalues of the tridiagonal matrix T that it makes first. The
two sums need none of them (see determinants.py): log det(I + T/t) is a recurrence along the diagonal, here for all
matrices and shifts t at once. A shift costs so little that the step is finer than there: the rule is exact to 7e-8.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor

from unsmooth.metrics.determinants import SLOPE, SMALLEST, TAIL, TURN
from unsmooth.metrics.openblas import openblas

STEP = 1.2
ABOVE = 5.0  # the largest t is e⁵ times √Σλ²
FEWEST, MOST = 48, 511  # rows: below, `eigvalsh` is as quick; above, LAPACK's threads are at work on one matrix
TOGETHER = 256  # matrices whose recurrences run side by side
EIGHT = 8  # pivots whose product is taken before its logarithm; one is 1e17 at most
Array = npt.NDArray[np.float64]
Form = tuple[Array, Array]


def is_quicker(side: int) -> bool:
    """Whether sums over singular values of so many are found this way here."""
    return FEWEST <= side <= MOST and openblas() is not None


def root_sums(
    gram: Float[Tensor, "matrix side side"], rank: Float[Tensor, " matrix"]
) -> tuple[Float[Tensor, " matrix"], Float[Tensor, " matrix"]]:
    """The two sums of each matrix, of which at most `rank` eigenvalues are not zero; NaN where it holds NaN."""
    with one_thread():
        form = tridiagonal_form(gram)
    return form_sums([form], rank)


def one_thread() -> AbstractContextManager[None]:
    """One matrix of this size gains nothing from a second thread of LAPACK."""
    blas = openblas()
    assert blas is not None
    return blas.threads(1)


def tridiagonal_form(gram: Float[Tensor, "matrix side side"]) -> Form:
    """Diagonals (matrix, side) and off-diagonals (matrix, side − 1)."""
    blas = openblas()
    assert blas is not None
    return blas.tridiagonal(gram.numpy())


def form_sums(forms: Sequence[Form], rank: Float[Tensor, " matrix"]) -> tuple[Tensor, Tensor]:
    """The two sums of all these matrices, side by side."""
    diagonal, off = (np.concatenate(each) for each in zip(*forms, strict=True))
    bound = rank.to(torch.float64).numpy()
    parts = [slice(i, i + TOGETHER) for i in range(0, len(diagonal), TOGETHER)]
    found = [tridiagonal_sums(diagonal[part], off[part], bound[part]) for part in parts]
    roots, logs = (torch.from_numpy(np.concatenate(each)) for each in zip(*found, strict=True))
    return roots, logs


def tridiagonal_sums(diagonal: Array, off: Array, rank: Array) -> tuple[Array, Array]:
    """The two sums of matrices with these diagonals (matrix, side) and off-diagonals (matrix, side − 1)."""
    side = diagonal.shape[1]
    trace = diagonal.sum(1)
    with np.errstate(all="ignore"):  # of matrices with NaN or zeros, whose sums are set below
        diagonal, square = diagonal / trace[:, None], (off / trace[:, None]) ** 2
        moment = (diagonal**2).sum(1) + 2 * square.sum(1)  # Σλ² where Σλ = 1
        top = ABOVE + 0.5 * np.log(moment)
        count = 1 + math.ceil((ABOVE - math.log(SMALLEST * side)) / STEP)
        u = top - STEP * np.arange(count)[:, None]  # (shift, matrix), t = eᵘ
        values = log_determinants(diagonal, square, np.exp(-u))
        # Below a t at which rounding made the matrix indefinite nothing can be told: the line goes on from there.
        slope = np.zeros_like(trace)
        last = np.zeros_like(trace)
        for row in values:
            known = np.isfinite(row)
            slope = np.where(known, np.clip((row - last) / STEP, slope, rank), slope)
            last = row[:] = np.where(known, row, last + STEP * slope)
        away = STEP * np.arange(1, TAIL + 1)[:, None]
        above = np.exp(-(top + away))
        nodes = np.concatenate([top + away, u, u[-1] - away])
        values = np.concatenate([above - moment * above**2 / 2, values, last + slope * away])
        part = STEP * np.exp(nodes / 2) * values
        total, weighted = part.sum(0), (nodes * part).sum(0)
        roots = np.sqrt(trace) * SLOPE * total
        logs = np.sqrt(trace) * (TURN * total + SLOPE * weighted) + np.log(trace) * roots
    ordinary, missing = np.isfinite(moment) & (trace > 0), np.where(np.isnan(trace), math.nan, 0.0)
    return np.where(ordinary, roots, missing), np.where(ordinary, logs, missing)


def log_determinants(diagonal: Array, square: Array, inverse: Array) -> Array:
    """log det(I + T/t), (shift, matrix), from T's diagonal, its squared off-diagonal and 1/t (shift, matrix).

    NaN where that is not positive definite.
    """
    values, product, least = np.zeros_like(inverse), np.ones_like(inverse), np.ones_like(inverse)
    inverse_square, before = inverse**2, np.empty_like(inverse)
    pivot = 1 + inverse * diagonal[:, 0]
    for i in range(1, diagonal.shape[1] + 1):
        product *= pivot
        np.minimum(least, pivot, out=least)
        if i % EIGHT == 0 or i == diagonal.shape[1]:
            values += np.log(product)
            product.fill(1.0)
        if i < diagonal.shape[1]:
            np.divide(inverse_square, pivot, out=before)
            before *= square[:, i - 1]
            np.multiply(inverse, diagonal[:, i], out=pivot)
            pivot -= before
            pivot += 1
    return np.where(least > 0, values, math.nan)
