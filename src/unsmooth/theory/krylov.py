"""The dominating eigenvalue of many linear maps at once: batched Arnoldi with thick restarts.

Only products with the map are used. All large arrays stay on the map's device; the small projected matrices go
to the CPU once per cycle. A restart keeps an orthonormal real basis of the best Ritz vectors (Stewart's
Krylov–Schur without its triangular form, which the recurrence does not need).
"""

from __future__ import annotations

from collections.abc import Callable
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


def dominating(
    apply: Apply,
    start: Float[Tensor, "batch size"],
    score: Score,
    *,
    subspace: int,
    tol: float,
    max_products: int,
    enough: Enough | None = None,
    project: Project | None = None,
) -> Ritz:
    """For each map the eigenvalue with the largest `score`; `apply(v, rows)` gets the maps still at work.

    An eigenvalue is converged when its error, the residual times its condition number in the space searched, is below
    `tol` of the map's size, or below `enough(value, rows)` where that is given.
    `project` is the projection on the invariant space that the search must not leave, also not by rounding.
    """
    total = start.shape[0]
    found = Ritz(
        torch.zeros(total, dtype=torch.complex128),
        torch.full((total,), torch.inf, dtype=torch.float64),
        torch.zeros(total, dtype=torch.float64),
        torch.ones(total, dtype=torch.float64),
        torch.zeros(total, dtype=torch.bool),
        0,
    )
    active, stopped = torch.arange(total), torch.zeros(total, dtype=torch.bool)
    basis, projected, dead = _first(start, subspace)
    filled, products = 0, 0
    while True:
        rows = None if len(active) == total else active.to(start.device)
        stop = min(filled + _CHECK_EVERY, subspace)
        _extend(apply, project, rows, basis, projected, dead, filled, stop)
        products, filled = products + stop - filled, stop
        h, gone = projected[:, : filled + 1, :filled].cpu().double(), dead[:, :filled].cpu()
        theta, vectors = _ritz(h, gone)
        ranked = torch.where(_lives_in(vectors, gone), -torch.inf, score(theta, active))
        order = ranked.argsort(dim=-1, descending=True, stable=True)
        _note(found, active, h, theta, vectors, order[:, 0], tol, torch.finfo(start.dtype).eps, enough, stopped)
        going = ~stopped[active]
        if not bool(going.any()) or products >= max_products:
            return replace(found, products=products)
        if filled == subspace:
            filled = max(subspace // 2, 1)
            q = _keep(theta, vectors, order, ranked, filled)[going]
            basis, projected, dead = _restart(basis[going.to(start.device)], h[going], q, subspace)
            active = active[going]


def _note(
    found: Ritz,
    active: Tensor,
    h: Tensor,
    theta: Tensor,
    vectors: Tensor,
    best: Tensor,
    tol: float,
    eps: float,
    enough: Enough | None,
    stopped: Bool[Tensor, " all"],
) -> None:
    """Write down the best Ritz value of each active map, and whether it will do."""
    each = torch.arange(len(active))
    value, vector = theta[each, best], vectors[each, :, best]
    residual = (h[:, -1].to(vector.dtype) * vector).sum(-1).abs()
    norm = h[:, :-1].norm(dim=(-2, -1)) / h.shape[-1] ** 0.5
    # A residual moves an eigenvalue by its condition number 1/|y·x| times as much. What is seen of that number in the
    # space searched is less than the whole map's, which rounding meets: there its square stands for it.
    condition = torch.linalg.inv_ex(vectors).inverse[each, best].norm(dim=-1)
    condition = torch.where(condition < _NEARLY_NORMAL, 1, condition)
    error = condition * residual + condition.square() * eps * norm
    allowed = tol * torch.maximum(norm, value.abs())
    if enough is not None:
        allowed = torch.maximum(allowed, enough(value, active))
    done = stopped[active]
    # a map that is done keeps its value while others of its batch go on to the end of the cycle
    found.value[active] = torch.where(done, found.value[active], value)
    found.residual[active] = torch.where(done, found.residual[active], residual)
    found.norm[active] = norm
    found.condition[active] = torch.where(done, found.condition[active], condition)
    found.converged[active] = torch.where(done, found.converged[active], error <= allowed)
    # a residual that is all rounding does not get smaller, whatever is left of the error
    stopped[active] = done | (error <= allowed) | (residual <= eps * norm)


def _first(start: Tensor, subspace: int) -> tuple[Tensor, Tensor, Tensor]:
    count, size = start.shape
    basis = start.new_zeros(count, subspace + 1, size)
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
    dead = torch.zeros(basis.shape[0], subspace + 1, dtype=torch.bool, device=basis.device)
    dead[:, :kept] = turned.abs().amax(-2) == 0
    return fresh, projected, dead
