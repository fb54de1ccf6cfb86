"""Start from existing weights: the nearest admissible spectrum, and how far it is from what was there.

Outputs depend on each head's H_h = (W_V^h W_proj^h)ᵀ, so the heads are fitted; where they do not satisfy the
constraint but the layer's whole H = Σ_h H_h does, H is fitted exactly and its eigenvectors are dealt out to the
heads that use them most. Everything runs in float64, once, before training.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from unsmooth.control.bounds import Bound
from unsmooth.control.forms import Form

#: A relative error below this is rounding of float32 weights: the constraint held already.
EXACT = 1e-4
_ROUNDS = 20

Heads = Float[Tensor, "head dim dim"]
Square = Float[Tensor, "dim dim"]
Vector = Float[Tensor, " dim"]
Sign = Float[Tensor, " one"]


@dataclass(frozen=True)
class Fit:
    """Relative Frobenius errors of one layer: over its heads (what outputs depend on) and of Σ_h H_h."""

    layer: str
    heads: float
    total: float


@dataclass(frozen=True)
class _Candidate:
    theta: Square
    psi: Vector
    heads: float
    total: float


def fit_layer(h: Heads, form: Form, bound: Bound, sign: Sign) -> _Candidate:
    """Θ and ψ whose heads are nearest to `h` (H_h, in float64), with the errors."""
    by_heads = _measure(h, *_BASES[form.name](h, bound, sign), form, bound, sign)
    if by_heads.heads <= EXACT or len(h) == 1:
        return by_heads
    vectors, values = _BASES[form.name](h.sum(0, keepdim=True), bound, sign)
    order = _deal(h, vectors)
    by_total = _measure(h, vectors[:, order], values[order], form, bound, sign)
    if by_total.total <= EXACT:
        return by_total
    return min(by_heads, by_total, key=lambda candidate: candidate.heads)


def _measure(h: Heads, vectors: Square, values: Vector, form: Form, bound: Bound, sign: Sign) -> _Candidate:
    psi = bound.to_psi(bound.nearest(values, sign), sign)
    w_v, w_proj = form.assemble(vectors, bound.to_lambda(psi, sign))
    count = len(h)
    fitted = (w_v.unflatten(1, (count, -1)).transpose(0, 1) @ w_proj.unflatten(0, (count, -1))).mT
    return _Candidate(vectors, psi, _relative(fitted, h), _relative(fitted.sum(0), h.sum(0)))


def _relative(ours: Tensor, theirs: Tensor) -> float:
    return float((ours - theirs).norm() / theirs.norm().clamp(min=torch.finfo(theirs.dtype).tiny))


def _eigen_basis(h: Heads, bound: Bound, sign: Sign) -> tuple[Square, Vector]:
    """Eigenvectors of each head beside each other; a complex pair gives its plane and its real part twice.

    The nearest admissible value to a complex λ is the one nearest to Re λ. Columns of zero eigenvalues span
    the null space of Σ_h H_h, as they must for V⁻¹ to be right.
    """
    count = h.shape[-1] // len(h)
    vectors, values = zip(*(_real_eigenvectors(head, count) for head in h), strict=True)
    v, eigenvalues = torch.cat(vectors, 1), torch.cat(values)
    zero = eigenvalues.abs() <= EXACT * 1e-4 * eigenvalues.abs().max()
    if bool(zero.any()):
        v[:, zero] = torch.linalg.svd(h.sum(0))[2][-int(zero.sum()) :].mT
    return v, eigenvalues


def _real_eigenvectors(matrix: Square, count: int) -> tuple[Float[Tensor, "dim count"], Float[Tensor, " count"]]:
    values, vectors = torch.linalg.eig(matrix)
    order = values.abs().argsort(descending=True, stable=True)
    values, vectors = values[order], vectors[:, order]
    # Conjugates are neighbours: of each pair the first gives Re v, the second Im v.
    columns = torch.where(values.imag < 0, vectors.imag, vectors.real)
    return columns[:, :count] / columns[:, :count].norm(dim=0).clamp(min=1e-300), values.real[:count]


def _semidefinite(h: Heads, sign: Sign) -> tuple[Heads, Float[Tensor, "head dim"]]:
    """Eigenvectors and values of sign·(H_h + H_hᵀ)/2, largest first: those ≥ 0 make its nearest such matrix."""
    values, vectors = torch.linalg.eigh(sign * (h + h.mT) / 2)
    return vectors.flip(-1), values.flip(-1)


def _split_basis(h: Heads, bound: Bound, sign: Sign) -> tuple[Square, Vector]:
    """V_h Λ_h V_hᵀ nearest to H_h: the best rank-k semidefinite part of its symmetric half, in closed form."""
    count = h.shape[-1] // len(h)
    vectors, values = _semidefinite(h, sign)
    wanted = sign * values[:, :count].clamp(min=0.0)
    admissible = bound.nearest(wanted, sign)
    # What exceeds the bound on Λ goes into the length of V's columns, which is free.
    scale = torch.where(wanted == 0, 1.0, wanted / torch.where(wanted == 0, 1.0, admissible)).sqrt()
    v = vectors[:, :, :count] * scale[:, None, :]
    return v.transpose(0, 1).flatten(1), admissible.flatten()


def _symmetric_basis(h: Heads, bound: Bound, sign: Sign) -> tuple[Square, Vector]:
    """Orthogonal Q with Q_h Λ_h Q_hᵀ near H_h: one head in closed form, several by ascent.

    With S_h the semidefinite part of sign·H_h, Σ_h tr(Λ_h Q_hᵀ S_h Q_h) is convex in Q, so replacing Q by the
    polar factor of its gradient [S_h Q_h |Λ_h|] never lowers it.
    """
    count = h.shape[-1] // len(h)
    vectors, values = _semidefinite(h, sign)
    s = vectors * values.clamp(min=0.0)[:, None, :] @ vectors.mT
    q_h = vectors[:, :, :count]
    for _ in range(1 if len(h) == 1 else _ROUNDS):
        sizes = (q_h * (s @ q_h)).sum(1)
        u, _, w = torch.linalg.svd((s @ q_h * sizes[:, None, :]).transpose(0, 1).flatten(1))
        q_h = (u @ w).unflatten(1, (len(h), -1)).transpose(0, 1)
    values = (q_h * (h @ q_h)).sum(1)
    return q_h.transpose(0, 1).flatten(1), values.flatten()


def _deal(h: Heads, vectors: Square) -> list[int]:
    """An order of the columns that gives each head k of them: the pairs with the largest |w_iᵀ H_h v_i| first."""
    count = h.shape[-1] // len(h)
    left = torch.linalg.pinv(vectors)
    scores = torch.einsum("id,hde,ei->hi", left, h, vectors).abs()
    dealt: list[list[int]] = [[] for _ in range(len(h))]
    taken: set[int] = set()
    for flat in scores.flatten().argsort(descending=True).tolist():
        head, column = divmod(flat, scores.shape[1])
        if column not in taken and len(dealt[head]) < count:
            dealt[head].append(column)
            taken.add(column)
    return [column for columns in dealt for column in columns]


_BASES = {"eigen": _eigen_basis, "split": _split_basis, "symmetric": _symmetric_basis}
