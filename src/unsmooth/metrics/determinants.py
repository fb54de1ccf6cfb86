"""Σ√λ and Σ√λ log λ of large positive semidefinite matrices from 10 to 20 determinants, without eigenvalues.

For 0 < s < 1 and every λ ≥ 0

    ∫₀^∞ t^(s−1) log(1 + λ/t) dt = λ^s π / (s sin πs),

so that Σλ^s follows from log det(I + G/t) alone, and Σλ^s log λ, its derivative by s, from the same determinants.
With t = eᵘ the integrand is analytic within ±iπ of the real line: the trapezoidal rule of step h is exact but for a
part e^(−2π²/h), 3e-5 at h = 1.9. Beyond the largest t two terms of the series of the logarithm are left; below the
smallest, log det is a straight line in u as long as no eigenvalue lies there, and what one that does can change is
bounded, which ends the loop. A Cholesky factor is made of matrix products; eigenvalues on a GPU are not: at 4,096 rows
on an H200 one factor takes 2.2 ms, `eigvalsh` 101 (benchmarks/spectrum_routes.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor

STEP = 1.9  # h
ABOVE = 3.5  # the largest t is e^3.5 times √Σλ²: the third term of the series is then 4e-6 of the integral at most
ENOUGH = 1e-6  # the part of the integral that eigenvalues below the smallest t may hold
SMALLEST = 4 * torch.finfo(torch.float64).eps  # times the number of rows: rounding of a Gram matrix of trace 1
LANES = 4  # matrices that are factored at the same time on a GPU; alone, one leaves part of it idle
TAIL = 64  # terms of the two sums that are known in closed form
SLOPE = 0.5 / math.pi  # s sin(πs)/π at s = 1/2
TURN = 1 / math.pi  # its derivative by s there


def root_sums(
    gram: Float[Tensor, "matrix side side"], rank: Float[Tensor, " matrix"]
) -> tuple[Float[Tensor, " matrix"], Float[Tensor, " matrix"]]:
    """Σ√λ and Σ√λ log λ of each matrix, of which at most `rank` eigenvalues are not zero; NaN where it holds NaN."""
    known = torch.stack([gram.diagonal(dim1=-2, dim2=-1).sum(-1), gram.square().sum((-2, -1)), rank.to(gram)], -1)
    searches = [_Search(matrix, *facts) for matrix, facts in zip(gram, known.tolist(), strict=True)]
    for start in range(0, len(searches), LANES):
        together = searches[start : start + LANES]
        while waiting := [search for search in together if not search.done]:
            for search, value in zip(waiting, _log_determinants(waiting), strict=True):
                search.take(value)
        for search in together:
            search.release()
    sums = torch.tensor([search.sums for search in searches], dtype=torch.float64, device=gram.device)
    return sums[:, 0], sums[:, 1]


class _Search:
    """One matrix: how far down its shifts have come, and the integrals so far."""

    def __init__(self, gram: Float[Tensor, "side side"], trace: float, square: float, rank: float):
        self.sums = (math.nan, math.nan) if math.isnan(trace + square) else (0.0, 0.0)
        self.done = not (math.isfinite(square) and trace > 0)
        if self.done:
            return
        self.trace, self.rank, self.side, self.device = trace, rank, len(gram), gram.device
        self.gram: Tensor | None = gram
        square /= trace**2  # from here on of G/trace, whose eigenvalues sum to one
        self.value, self.weighted = 0.0, 0.0
        self.u, self.last, self.count = ABOVE + 0.5 * math.log(square), 0.0, 0.0
        self._series(self.u, +1, lambda t, _: 1 / t - square / (2 * t * t))

    def shifted(self) -> Float[Tensor, "side side"]:
        """I + G/t at the shift whose determinant is wanted."""
        assert self.gram is not None
        matrix = self.gram / (self.trace * math.exp(self.u))
        matrix.diagonal().add_(1)
        return matrix

    def take(self, value: float) -> None:
        """Its log-determinant; go on, or end. NaN: rounding made it indefinite, t is below what G can tell."""
        if math.isnan(value):
            return self._end(self.u + STEP)
        self._add(self.u, value)
        # Eigenvalues above t, or nearly; there are never fewer at a smaller t.
        self.count, self.last = min(self.rank, max(self.count, (value - self.last) / STEP)), value
        t = math.exp(self.u)
        if 4 * math.sqrt(t) * (self.rank - self.count) <= ENOUGH * self.value or t <= SMALLEST * self.side:
            return self._end(self.u)
        self.u -= STEP
        return None

    def release(self) -> None:
        """Forget the matrix."""
        self.gram = None

    def _end(self, u: float) -> None:
        self._series(u, -1, lambda _, away: self.last + self.count * away)
        roots, logs = SLOPE * self.value, TURN * self.value + SLOPE * self.weighted
        size = math.sqrt(self.trace)
        self.sums, self.done = (size * roots, size * (logs + math.log(self.trace) * roots)), True

    def _add(self, u: float, value: float) -> None:
        part = STEP * math.exp(u / 2) * value
        self.value += part
        self.weighted += u * part

    def _series(self, u: float, side: int, value: Callable[[float, float], float]) -> None:
        """The nodes above (+1) or below (−1) `u`, from `value` of t and of the distance from u."""
        for k in range(1, TAIL + 1):
            there = u + side * k * STEP
            self._add(there, value(math.exp(there), k * STEP))


def _log_determinants(searches: list[_Search]) -> list[float]:
    """log det of each one's shifted matrix, NaN where that is not positive definite; waits for the device once."""
    lanes = _lanes(searches[0].device)[: len(searches)]
    if not lanes:
        return [float(_log_determinant(search.shifted())) for search in searches]
    here, found = torch.cuda.current_stream(searches[0].device), []
    for lane, search in zip(lanes, searches, strict=True):
        lane.wait_stream(here)
        with torch.cuda.stream(lane):
            found.append(_log_determinant(search.shifted()))
    for lane in lanes:
        here.wait_stream(lane)
    values: list[float] = torch.stack(found).tolist()
    return values


def _log_determinant(matrix: Float[Tensor, "side side"]) -> Float[Tensor, ""]:
    factor, info = torch.linalg.cholesky_ex(matrix)
    return torch.where(info == 0, 2 * factor.diagonal().log().sum(), torch.nan)


@cache
def _lanes(device: torch.device) -> list[torch.cuda.Stream]:
    """The streams of a GPU, made once; none elsewhere."""
    return [torch.cuda.Stream(device) for _ in range(LANES)] if device.type == "cuda" else []
