"""The dominating eigenvalue of many linear maps at once: batched Arnoldi with thick restarts.

Only products with the map are used. All large arrays stay on the map's device; the small projected matrices go
to the CPU once per cycle. A restart keeps an orthonormal real basis of the best Ritz vectors (Stewart's
Krylov–Schur without its triangular form, which the recurrence does not need).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Complex, Float, Int
from torch import Tensor

from unsmooth.metrics.workers import spread_rows

Apply = Callable[[Float[Tensor, "batch size"], Int[Tensor, " batch"] | None], Float[Tensor, "batch size"]]
Project = Callable[[Float[Tensor, "batch size"], Int[Tensor, " batch"] | None], Float[Tensor, "batch size"]]
Enough = Callable[[Complex[Tensor, " batch"], Int[Tensor, " batch"]], Float[Tensor, " batch"]]
Score = Callable[[Complex[Tensor, "batch ritz"], Int[Tensor, " batch"]], Float[Tensor, "batch ritz"]]

_CHECK_EVERY = 8  # products between two looks at the Ritz values
_NEARLY_NORMAL = 3.0  # condition of an eigenvalue below which its residual is taken for its error, which is smaller


@dataclass(frozen=True)
class Ritz:
    """One eigenvalue per map, its residual `‖Ty − θy‖`, the size of T seen, and whether it met the tolerance.

    `condition` is what the residual of a non-normal map is multiplied by to give the eigenvalue's error.
    """

    value: Complex[Tensor, " batch"]
    residual: Float[Tensor, " batch"]
    norm: Float[Tensor, " batch"]
    condition: Float[Tensor, " batch"]
    converged: Bool[Tensor, " batch"]
    products: int


@dataclass(frozen=True)
class Goal:
    """Which eigenvalue is wanted, the one with the largest score, and the error that will do beside the tolerance."""

    score: Score
    enough: Enough | None = None


def dominating(
    apply: Apply,
    start: Float[Tensor, "batch size"],
    goals: Sequence[Goal],
    *,
    subspace: int,
    tol: float,
    max_products: int,
    project: Project | None = None,
) -> list[Ritz]:
    """For each map and goal an eigenvalue, all by one search; `apply(v, rows)` gets the maps still at work.

    An eigenvalue is converged when its error, the residual times its condition number in the space searched, is below
    `tol` of the map's size, or, where that is given, below `goal.enough(value, rows)` by which it has not moved since
    the look before.
    `project` is the projection on the invariant space that the search must not leave, also not by rounding.
    """
    total, eps = start.shape[0], torch.finfo(start.dtype).eps
    found = [_nothing_yet(total) for _ in goals]
    active, stopped = torch.arange(total), torch.zeros(len(goals), total, dtype=torch.bool)
    rows: Tensor | None = None
    basis, projected, dead = _first(start, subspace)
    filled, products = 0, 0
    while True:
        stop = min(filled + _CHECK_EVERY, subspace)
        _extend(apply, project, rows, basis, projected, dead, filled, stop)
        products, filled = products + stop - filled, stop
        h, gone = projected[:, : filled + 1, :filled].cpu().double(), dead[:, :filled].cpu()
        theta, vectors = _ritz(h, gone)
        unusable, lengths = _lives_in(vectors, gone), _left_lengths(vectors)
        ranks = []
        for goal, ritz, done in zip(goals, found, stopped, strict=True):
            scores = torch.where(unusable, -torch.inf, goal.score(theta, active))
            # conjugates have the same rank; where a goal is reached, the others choose what is kept
            rank = (scores[:, None] > scores[..., None]).sum(-1)
            ranks.append(torch.where(done[active][:, None], rank.shape[-1], rank))
            _note(ritz, active, h, theta, vectors, lengths, scores.argmax(-1), tol, eps, goal.enough, done)
        going = ~stopped.all(0)[active]
        if not bool(going.any()) or products >= max_products:
            return [replace(ritz, products=products) for ritz in found]
        if filled == subspace:
            filled = max(subspace // 2, 1)
            order = _pairs_together(theta, torch.stack(ranks).amin(0))
            q = _keep(theta, vectors, order, unusable, filled)[going]
            if not bool(going.all()):
                active = active[going]
                rows, basis = active.to(start.device), basis[going.to(start.device)]
            projected, dead = _restart(basis, h[going], q, subspace)


def _nothing_yet(total: int) -> Ritz:
    zeros = torch.zeros(total, dtype=torch.float64)
    value, never = torch.zeros(total, dtype=torch.complex128), torch.zeros(total, dtype=torch.bool)
    return Ritz(value, torch.full_like(zeros, torch.inf), zeros, torch.ones_like(zeros), never, 0)


def _pairs_together(theta: Complex[Tensor, "batch ritz"], rank: Int[Tensor, "batch ritz"]) -> Int[Tensor, "batch ritz"]:
    """By rank, an eigenvalue next to its conjugate also where two goals give different ones the same rank."""
    by_real = theta.real.argsort(dim=-1, descending=True, stable=True)
    return by_real.gather(-1, rank.gather(-1, by_real).argsort(dim=-1, stable=True))


def _note(
    found: Ritz,
    active: Tensor,
    h: Tensor,
    theta: Tensor,
    vectors: Tensor,
    lengths: Tensor,
    best: Tensor,
    tol: float,
    eps: float,
    enough: Enough | None,
    stopped: Bool[Tensor, " all"],
) -> None:
    """Write down the best Ritz value of each active map, and whether it will do; `lengths` are of left eigenvectors."""
    each = torch.arange(len(active))
    value, vector = theta[each, best], vectors[each, :, best]
    residual = (h[:, -1].to(vector.dtype) * vector).sum(-1).abs()
    norm = h[:, :-1].norm(dim=(-2, -1)) / h.shape[-1] ** 0.5
    # A residual moves an eigenvalue by its condition number 1/|y·x| times as much. What is seen of that number in the
    # space searched is less than the whole map's, which rounding meets: there its square stands for it.
    condition = lengths[each, best]
    condition = torch.where(condition < _NEARLY_NORMAL, 1, condition)
    error = condition * residual + condition.square() * eps * norm
    rounding = residual <= eps * norm
    met = error <= tol * torch.maximum(norm, value.abs())
    if enough is not None:
        # a small residual says that an eigenvalue is near, not that none dominates it which the start has little of:
        # the value must have stood still since the look before, while the search went on
        allowed = enough(value, active)
        still = (_upper(value) - _upper(found.value[active])).abs() <= allowed
        met |= (error <= allowed) & (still | rounding)
    done = stopped[active]
    # a map that is done keeps its value while others of its batch go on to the end of the cycle
    found.value[active] = torch.where(done, found.value[active], value)
    found.residual[active] = torch.where(done, found.residual[active], residual)
    found.norm[active] = norm
    found.condition[active] = torch.where(done, found.condition[active], condition)
    found.converged[active] = torch.where(done, found.converged[active], met)
    # a residual that is all rounding does not get smaller, whatever is left of the error
    stopped[active] = done | met | rounding


def _upper(value: Complex[Tensor, " batch"]) -> Complex[Tensor, " batch"]:
    """Of a conjugate pair always the same one."""
    return torch.complex(value.real, value.imag.abs())


def _first(start: Tensor, subspace: int) -> tuple[Tensor, Tensor, Tensor]:
    count, size = start.shape
    basis = start.new_empty(count, subspace + 1, size)
    length = start.norm(dim=-1, keepdim=True)
    basis[:, 0] = start / torch.where(length > 0, length, 1)
    dead = torch.zeros(count, subspace + 1, dtype=torch.bool, device=start.device)
    dead[:, 0] = length[:, 0] == 0
    return basis, start.new_zeros(count, subspace + 1, subspace), dead


def _extend(
    apply: Apply,
    project: Project | None,
    rows: Tensor | None,
    basis: Tensor,
    projected: Tensor,
    dead: Tensor,
    filled: int,
    stop: int,
) -> None:
    """Arnoldi steps `filled … stop − 1` in place."""
    eps = torch.finfo(basis.dtype).eps
    for step in range(filled, stop):
        new = apply(basis[:, step], rows)
        before = new.norm(dim=-1)
        new, known = _orthogonalise(new, basis[:, : step + 1])
        left = new.norm(dim=-1)
        alive = left > 0
        if bool((left < 0.3 * before).any()):  # cancellation: once more, which is enough unless nothing is left
            new, rest = _orthogonalise(new if project is None else project(new, rows), basis[:, : step + 1])
            new = new if project is None else project(new, rows)
            known, once, left = known + rest, left, new.norm(dim=-1)
            alive = (left > 0.1 * once) & (left > 100 * eps * before)
        projected[:, : step + 1, step] = known
        # nothing new: the space is invariant, what follows is zero and its slots are dead
        dead[:, step + 1] = ~alive
        projected[:, step + 1, step] = torch.where(alive, left, 0)
        scale = torch.where(alive, 1 / torch.where(alive, left, 1), 0)
        torch.mul(new, scale[:, None], out=basis[:, step + 1])


def _orthogonalise(new: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
    # rows on the left: the other way round costs four times as much on a CPU
    row = new[:, None]
    coefficients = row @ known.mT
    return torch.baddbmm(row, coefficients, known, alpha=-1)[:, 0], coefficients[:, 0]


def _left_lengths(vectors: Complex[Tensor, "map size size"]) -> Float[Tensor, "map size"]:
    """Lengths of the left eigenvectors that belong to unit right ones."""
    return torch.cat(spread_rows(lambda part: torch.linalg.inv_ex(part).inverse.norm(dim=-1), vectors))


def _ritz(h: Float[Tensor, "batch more m"], dead: Bool[Tensor, "batch m"]) -> tuple[Tensor, Tensor]:
    """Eigenpairs of the projected matrices; a dead slot gets an eigenvalue of its own, far away and alone."""
    square = h[:, :-1].clone()
    far = 2 * (square.norm(dim=(-2, -1)) + 1)
    ladder = far[:, None] * (1 + torch.arange(square.shape[-1]))
    square.diagonal(dim1=-2, dim2=-1)[dead] = ladder[dead]
    values, vectors = zip(*spread_rows(torch.linalg.eig, square), strict=True)
    return torch.cat(values), torch.cat(vectors)


def _lives_in(vectors: Complex[Tensor, "batch m ritz"], dead: Bool[Tensor, "batch m"]) -> Tensor:
    return (vectors.abs().square() * dead[..., None]).sum(-2) > 0.5


def _keep(theta: Tensor, vectors: Tensor, order: Tensor, unusable: Tensor, kept: int) -> Float[Tensor, "batch m kept"]:
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
    unusable = unusable.gather(-1, chosen)
    unusable[:, -1] |= cut
    return torch.where(unusable[:, None], 0, q)


def _restart(basis: Tensor, h: Tensor, q: Tensor, subspace: int) -> tuple[Tensor, Tensor]:
    """`T V_p = V_p (QᵀHQ) + v_{m+1} bᵀ` with `V_p = V Q`, `b = h_{m+1} Q`; V_p takes V's place."""
    kept = q.shape[-1]
    turned = q.to(basis)
    basis[:, :kept] = turned.mT @ basis[:, :subspace]
    basis[:, kept] = basis[:, subspace]
    projected = basis.new_zeros(basis.shape[0], subspace + 1, subspace)
    projected[:, :kept, :kept] = (q.mT @ h[:, :-1] @ q).to(basis)
    projected[:, kept, :kept] = (h[:, -1:] @ q)[:, 0].to(basis)
    dead = torch.zeros(basis.shape[0], subspace + 1, dtype=torch.bool, device=basis.device)
    dead[:, :kept] = turned.abs().amax(-2) == 0
    return projected, dead
