"""The dominating eigenvalue of many linear maps at once: batched Arnoldi with thick restarts.

Only products with the map are used. All large arrays stay on the map's device; the small projected matrices go
to the CPU once per cycle. A restart keeps an orthonormal real basis of the best Ritz vectors (Stewart's
Krylov–Schur without its triangular form, which the recurrence does not need).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Complex, Float, Int
from torch import Tensor

Apply = Callable[[Float[Tensor, "batch size"], Int[Tensor, " batch"] | None], Float[Tensor, "batch size"]]
Project = Callable[[Float[Tensor, "batch size"], Int[Tensor, " batch"] | None], Float[Tensor, "batch size"]]
Score = Callable[[Complex[Tensor, "batch ritz"], Int[Tensor, " batch"]], Float[Tensor, "batch ritz"]]


@dataclass(frozen=True)
class Ritz:
    """One eigenvalue per map, its residual `‖Ty − θy‖`, the size of T seen, and whether it met the tolerance."""

    value: Complex[Tensor, " batch"]
    residual: Float[Tensor, " batch"]
    norm: Float[Tensor, " batch"]
    converged: Bool[Tensor, " batch"]
    products: int


def dominating(
    apply: Apply,
    start: Float[Tensor, "batch size"],
    score: Score,
    *,
    subspace: int,
    tol: float,
    max_products: int,
    enough: Float[Tensor, " batch"] | None = None,
    project: Project | None = None,
) -> Ritz:
    """For each map the eigenvalue with the largest `score`; `apply(v, rows)` gets the maps still at work.

    A residual below `tol` of the map's size is converged, or one below `enough` where that is given.
    `project` is the projection on the invariant space that the search must not leave, also not by rounding.
    """
    total = start.shape[0]
    value = torch.zeros(total, dtype=torch.complex128)
    residual, norm = torch.full((total,), torch.inf, dtype=torch.float64), torch.zeros(total, dtype=torch.float64)
    converged = torch.zeros(total, dtype=torch.bool)
    active = torch.arange(total)
    basis, projected, dead = _first(start, subspace)
    kept, products = 0, 0
    while len(active):
        rows = None if len(active) == total else active.to(start.device)
        _extend(apply, project, rows, basis, projected, dead, kept)
        products += subspace - kept
        h = projected.cpu().double()
        theta, vectors = _ritz(h, dead.cpu())
        ranked = score(theta, active)
        ranked = torch.where(_lives_in(vectors, dead.cpu()), -torch.inf, ranked)
        order = ranked.argsort(dim=-1, descending=True, stable=True)
        best = order[:, 0]
        each = torch.arange(len(active))
        value[active] = theta[each, best]
        residual[active] = (h[:, -1, :].to(vectors.dtype)[:, None] @ vectors)[each, 0, best].abs()
        norm[active] = h[:, :-1].norm(dim=(-2, -1)) / subspace**0.5
        allowed = tol * torch.maximum(norm[active], theta[each, best].abs())
        converged[active] = residual[active] <= (allowed if enough is None else torch.maximum(allowed, enough[active]))
        going = ~converged[active]
        if not bool(going.any()) or products >= max_products:
            break
        kept = max(subspace // 2, 1)
        q = _keep(theta, vectors, order, ranked, kept)[going]
        where = going.to(start.device)
        basis, projected, dead = _restart(basis[where], h[going], q, subspace)
        active = active[going]
    return Ritz(value, residual, norm, converged, products)


def _first(start: Tensor, subspace: int) -> tuple[Tensor, Tensor, Tensor]:
    count, size = start.shape
    basis = start.new_zeros(count, subspace + 1, size)
    basis[:, 0] = start / start.norm(dim=-1, keepdim=True)
    dead = torch.zeros(count, subspace, dtype=torch.bool, device=start.device)
    return basis, start.new_zeros(count, subspace + 1, subspace), dead


def _extend(
    apply: Apply,
    project: Project | None,
    rows: Tensor | None,
    basis: Tensor,
    projected: Tensor,
    dead: Tensor,
    kept: int,
) -> None:
    """Arnoldi steps `kept … m−1` in place."""
    eps = torch.finfo(basis.dtype).eps
    for step in range(kept, basis.shape[1] - 1):
        dead[:, step] = basis[:, step].abs().amax(-1) == 0
        new = apply(basis[:, step], rows)
        before = new.norm(dim=-1)
        new, known = _orthogonalise(new, basis[:, : step + 1])
        left = new.norm(dim=-1)
        if bool((left < 0.7 * before).any()):  # cancellation: once more (Daniel, Gragg, Kaufman and Stewart)
            new, rest = _orthogonalise(new if project is None else project(new, rows), basis[:, : step + 1])
            known, left = known + rest, new.norm(dim=-1)
        projected[:, : step + 1, step] = known
        # nothing new: the space is invariant, what follows is zero and its slots are dead
        alive = left > 100 * eps * before
        projected[:, step + 1, step] = torch.where(alive, left, 0)
        new = torch.where(alive[:, None], new / torch.where(alive, left, 1)[:, None], 0)
        basis[:, step + 1] = new if project is None else project(new, rows)


def _orthogonalise(new: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
    coefficients = known @ new[..., None]
    return torch.baddbmm(new[..., None], known.mT, coefficients, alpha=-1)[..., 0], coefficients[..., 0]


def _ritz(h: Float[Tensor, "batch more m"], dead: Bool[Tensor, "batch m"]) -> tuple[Tensor, Tensor]:
    """Eigenpairs of the projected matrices; a dead slot gets an eigenvalue of its own, far away and alone."""
    square = h[:, :-1].clone()
    far = 2 * (square.norm(dim=(-2, -1)) + 1)
    ladder = far[:, None] * (1 + torch.arange(square.shape[-1]))
    square.diagonal(dim1=-2, dim2=-1)[dead] = ladder[dead]
    return torch.linalg.eig(square)


def _lives_in(vectors: Complex[Tensor, "batch m ritz"], dead: Bool[Tensor, "batch m"]) -> Tensor:
    return (vectors.abs().square() * dead[..., None]).sum(-2) > 0.5


def _keep(theta: Tensor, vectors: Tensor, order: Tensor, ranked: Tensor, kept: int) -> Float[Tensor, "batch m kept"]:
    """An orthonormal real basis of the best `kept` Ritz vectors; zero columns where a pair would be cut."""
    chosen = order[:, :kept]
    values = theta.gather(-1, chosen)
    columns = vectors.gather(-1, chosen[:, None, :].expand(-1, vectors.shape[-2], -1))
    # of a conjugate pair, one gives the real part and the other the imaginary part
    real = torch.where((values.imag < 0)[:, None], columns.imag, columns.real)
    q = torch.linalg.qr(real).Q
    last = values[:, -1]
    pairs = (values.imag != 0).sum(-1) % 2 == 1
    cut = pairs & (last.imag != 0)
    unusable = ranked.gather(-1, chosen) == -torch.inf
    unusable[:, -1] |= cut
    return torch.where(unusable[:, None], 0, q)


def _restart(basis: Tensor, h: Tensor, q: Tensor, subspace: int) -> tuple[Tensor, Tensor, Tensor]:
    """`T V_p = V_p (QᵀHQ) + v_{m+1} bᵀ` with `V_p = V Q`, `b = h_{m+1} Q`."""
    kept = q.shape[-1]
    turned = q.to(basis)
    fresh = torch.zeros_like(basis)
    fresh[:, :kept] = turned.mT @ basis[:, :subspace]
    fresh[:, kept] = basis[:, subspace]
    projected = basis.new_zeros(basis.shape[0], subspace + 1, subspace)
    projected[:, :kept, :kept] = (q.mT @ h[:, :-1] @ q).to(basis)
    projected[:, kept, :kept] = (h[:, -1:] @ q)[:, 0].to(basis)
    dead = torch.zeros(basis.shape[0], subspace, dtype=torch.bool, device=basis.device)
    dead[:, :kept] = turned.abs().amax(-2) == 0
    return fresh, projected, dead
