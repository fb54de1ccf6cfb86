"""One sample at a time, float64, a full SVD, all pairs."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def kept_tokens(x: Tensor, mask: Tensor | None = None) -> Tensor:
    """The kept rows of one sample, in float64."""
    return (x if mask is None else x[mask]).double()


def high_low_ratio(x: Tensor, norm: str = "fro") -> Tensor:
    """‖X − 1x̄ᵀ‖ / ‖1x̄ᵀ‖ with numpy-style matrix norms."""
    low = x.mean(0, keepdim=True).expand_as(x)
    order = "fro" if norm == "fro" else 2
    return torch.linalg.matrix_norm(x - low, order) / torch.linalg.matrix_norm(low, order)


def pairwise_cosines(x: Tensor) -> Tensor:
    """The n × n matrix of cosines, 0 where a token is zero."""
    size = x.norm(dim=1)
    lengths = size[:, None] * size[None, :]
    return torch.where(lengths > 0, x @ x.T / torch.where(lengths > 0, lengths, 1.0), 0.0)


def mean_cosine(x: Tensor) -> Tensor:
    """Mean over the pairs i < j."""
    upper = torch.triu_indices(len(x), len(x), 1)
    return pairwise_cosines(x)[upper[0], upper[1]].mean()


def entropy_rank(x: Tensor, epsilon: float = 0.0) -> Tensor:
    """exp of the entropy of σ/Σσ + ε, from a full SVD."""
    sigma = torch.linalg.svd(x).S
    p = sigma / sigma.sum() + epsilon
    return torch.special.entr(p).sum().exp()


def composite_norm(x: Tensor) -> Tensor:
    """√(‖·‖₁ ‖·‖_∞)."""
    return (torch.linalg.matrix_norm(x, 1) * torch.linalg.matrix_norm(x, float("inf"))).sqrt()


def pairwise_energy(x: Tensor) -> Tensor:
    """Σ_ij ‖x_i − x_j‖² / (2n)."""
    return (x[:, None] - x[None]).square().sum() / (2 * len(x))


def tridiagonal_eigenvalues(matrix: Tensor, grid: int = 256, thirds: int = 12) -> Tensor:
    """Ascending eigenvalues as the GPU kernel finds them: Householder steps with a lagging update, Sturm counts."""
    diagonal, side = tridiagonalise(matrix)
    n = len(matrix)
    reach = diagonal.abs() + torch.cat([side, side.new_zeros(1)]).abs() + torch.cat([side.new_zeros(1), side]).abs()
    bound = float(reach.max())
    if not bound > 0:
        return torch.zeros_like(diagonal) if bound == 0 else torch.full_like(diagonal, math.nan)
    d = (diagonal / bound).tolist()
    squares = [0.0, *((side / bound).square().clamp(min=1e-40)).tolist()]
    found = []
    for index in range(n):
        cell = next((g for g in range(grid) if sturm_count(d, squares, ((g + 1) / grid) ** 2) > index), grid - 1)
        low, high = cell / grid, (cell + 1) / grid
        for _ in range(thirds):
            cuts = [low + (high - low) * k / 3 for k in (1, 2)]
            above = [sturm_count(d, squares, s * s) > index for s in cuts]
            low, high = (low, cuts[0]) if above[0] else (cuts[0], cuts[1]) if above[1] else (cuts[1], high)
        found.append(((low + high) / 2) ** 2 * bound if low > 0 else 0.0)
    return torch.tensor(found, dtype=torch.float64)


def tridiagonalise(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Diagonal and off-diagonal; A ← A − v wᵀ − w vᵀ is applied one step late, together with the next A v."""
    a = matrix.double().clone()
    n = len(a)
    v, w = torch.zeros(n, dtype=a.dtype), torch.zeros(n, dtype=a.dtype)
    diagonal, side = [], []
    for step in range(n):
        column = a[:, step] - v * w[step] - w * v[step]
        diagonal.append(column[step])
        if step + 1 == n:
            break
        alpha, rest = column[step + 1], column[step + 2 :].square().sum()
        beta = -torch.copysign((alpha.square() + rest).sqrt(), alpha) if rest > 0 else alpha
        side.append(beta)
        u = torch.zeros_like(v)
        u[step + 1] = 1.0
        if rest > 0:
            u[step + 2 :] = column[step + 2 :] / (alpha - beta)
        tau = (beta - alpha) / beta if rest > 0 else torch.zeros(())
        a = a - torch.outer(v, w) - torch.outer(w, v)
        a[: step + 1] = a[:, : step + 1] = 0.0
        p = a @ u
        v, w = u, tau * p - 0.5 * tau * tau * (p @ u) * u
    return torch.stack(diagonal), torch.stack(side) if side else a.new_zeros(0)


def sturm_count(diagonal: list[float], squares: list[float], x: float) -> int:
    """How many eigenvalues lie below x: sign changes of the leading minors."""
    before, now, count = 0.0, 1.0, 0
    for d, square in zip(diagonal, squares, strict=True):
        before, now = now, (d - x) * now - square * before
        count += math.copysign(1.0, now) != math.copysign(1.0, before)
        scale = max(abs(now), abs(before))
        before, now = before / scale, now / scale
    return count
