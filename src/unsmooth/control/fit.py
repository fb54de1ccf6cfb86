"""Start from existing weights: the nearest admissible spectrum, and how far it is from what was there.

Outputs depend on each head's H_h = (W_V^h W_proj^h)ᵀ, so the heads are fitted; where they do not satisfy the
constraint but the layer's whole H = Σ_h H_h does, H is fitted exactly and its eigenvectors are dealt out to the
heads that use them most. Everything runs in float64, once, before training.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isnan

import torch
from jaxtyping import Float
from torch import Tensor

from unsmooth.control.bounds import Bound
from unsmooth.control.forms import Form

#: A relative error below this is rounding of float32 weights: the constraint held already.
EXACT = 1e-4
_ROUNDS = 10

Values = Float[Tensor, "head dim key"]
Projections = Float[Tensor, "head key dim"]
Square = Float[Tensor, "dim dim"]
Vector = Float[Tensor, " dim"]
Sign = Float[Tensor, " one"]


@dataclass(frozen=True)
class Fit:
    """Relative Frobenius errors of one layer: over its heads (what outputs depend on) and of Σ_h H_h.

    Absolute ones where H is zero.
    """

    layer: str
    heads: float
    total: float


@dataclass(frozen=True)
class Fitted:
    """Θ and ψ of one layer, with the errors of the fit."""

    theta: Square
    psi: Vector
    heads: float
    total: float


def fit_layer(w_v: Values, w_proj: Projections, form: Form, bound: Bound, sign: Sign) -> Fitted:
    """Θ and ψ whose heads are nearest to H_h = (W_V^h W_proj^h)ᵀ, given in float64."""
    h = (w_v @ w_proj).mT
    by_heads = _measure(h, *_BASES[form.name](w_v, w_proj, sign), form, bound, sign)
    if by_heads.heads <= EXACT or len(h) == 1:
        return by_heads
    total = h.sum(0, keepdim=True).mT, torch.eye(h.shape[-1], dtype=h.dtype)[None]
    vectors, values = _BASES[form.name](*total, sign)
    order = _deal(h, vectors)
    by_total = _measure(h, vectors[:, order], values[order], form, bound, sign)
    if by_total.total <= EXACT:
        return by_total
    # NaN: eigenvectors that do not span the space, so that V has no inverse.
    return min(by_heads, by_total, key=lambda candidate: inf if isnan(candidate.heads) else candidate.heads)


def distances(ours: tuple[Values, Projections], theirs: tuple[Values, Projections]) -> tuple[float, float]:
    """Relative errors of the heads H_h and of Σ_h H_h."""
    (h, wanted) = ((w_v @ w_proj).mT for w_v, w_proj in (ours, theirs))
    return _relative(h, wanted), _relative(h.sum(0), wanted.sum(0))


def _measure(h: Tensor, vectors: Square, values: Vector, form: Form, bound: Bound, sign: Sign) -> Fitted:
    admissible = bound.nearest(values, sign)
    if form.name == "split":
        # What exceeds the bound on Λ goes into the length of V's columns, which is free.
        vectors = vectors * torch.where(admissible == 0, 1.0, values / admissible).clamp(min=0.0).sqrt()
    psi = bound.to_psi(admissible, sign)
    w_v, w_proj = form.assemble(vectors, bound.to_lambda(psi, sign))
    count = len(h)
    fitted = (w_v.unflatten(1, (count, -1)).transpose(0, 1) @ w_proj.unflatten(0, (count, -1))).mT
    return Fitted(vectors, psi, _relative(fitted, h), _relative(fitted.sum(0), h.sum(0)))


def _relative(ours: Tensor, theirs: Tensor) -> float:
    size = float(theirs.norm())
    return float((ours - theirs).norm()) / (size or 1.0)


def _eigen_basis(w_v: Values, w_proj: Projections, sign: Sign) -> tuple[Square, Vector]:
    """Eigenvectors of each head beside each other; a complex pair gives its plane and its real part twice.

    The nearest admissible value to a complex λ is the one nearest to Re λ. Columns of zero eigenvalues span
    the null space of Σ_h H_h, as they must for V⁻¹ to be right.
    """
    # H y' = λ y' with y' = W_projᵀ y and (W_proj W_V)ᵀ y = λ y: a k×k problem per head.
    values, vectors = torch.linalg.eig((w_proj @ w_v).mT)
    # Of each pair of conjugates (neighbours in LAPACK's order) the first gives Re y, the second Im y.
    real = torch.where(values.imag[:, None, :] < 0, vectors.imag, vectors.real)
    v, eigenvalues = _beside(w_proj.mT @ real), values.real.flatten()
    sizes = values.abs().flatten()
    zero = sizes <= EXACT * 1e-4 * sizes.max()
    if bool(zero.any()):
        v[:, zero] = torch.linalg.svd((w_v @ w_proj).sum(0).mT)[2][-int(zero.sum()) :].mT
    return v / v.norm(dim=0), eigenvalues


def _semidefinite(w_v: Values, w_proj: Projections, sign: Sign) -> tuple[Tensor, Tensor]:
    """Eigenvectors and values of sign·(H_h + H_hᵀ)/2, largest first; all zeros it has besides are left out."""
    key, dim = w_proj.shape[-2:]
    eye = torch.eye(dim, dtype=w_v.dtype).expand(len(w_v), dim, dim)
    span = torch.linalg.qr(torch.cat([w_proj.mT, w_v], -1))[0] if 2 * key < dim else eye
    half = span.mT @ w_proj.mT @ (w_v.mT @ span)
    values, vectors = torch.linalg.eigh(sign * (half + half.mT) / 2)
    return (span @ vectors).flip(-1), values.flip(-1)


def _split_basis(w_v: Values, w_proj: Projections, sign: Sign) -> tuple[Square, Vector]:
    """V_h Λ_h V_hᵀ nearest to H_h: the best rank-k semidefinite part of its symmetric half, in closed form."""
    key = w_proj.shape[1]
    vectors, values = _semidefinite(w_v, w_proj, sign)
    return _beside(vectors[:, :, :key]), (sign * values[:, :key].clamp(min=0.0)).flatten()


def _symmetric_basis(w_v: Values, w_proj: Projections, sign: Sign) -> tuple[Square, Vector]:
    """Orthogonal Q with Q_h Λ_h Q_hᵀ near H_h: one head in closed form, several by ascent.

    With S_h the semidefinite part of sign·H_h, Σ_h tr(Λ_h Q_hᵀ S_h Q_h) is convex in Q, so replacing Q by the
    polar factor of its gradient [S_h Q_h |Λ_h|] never lowers it.
    """
    heads, key = w_proj.shape[:2]
    vectors, values = _semidefinite(w_v, w_proj, sign)
    root = vectors * values.clamp(min=0.0).sqrt()[:, None, :]  # S_h = root rootᵀ
    q, before = vectors[:, :, :key], -1.0
    for _ in range(_ROUNDS):
        pulled = root @ (root.mT @ q)
        sizes = (q * pulled).sum(1)
        u, _, w = torch.linalg.svd(_beside(pulled * sizes[:, None, :]))
        q = (u @ w).unflatten(1, (heads, key)).transpose(0, 1)
        reached = float((root.mT @ q).square().sum(1).square().sum())
        if reached <= before * (1 + 1e-6):
            break
        before = reached
    values = (q * (w_proj.mT @ (w_v.mT @ q))).sum(1)
    return _beside(q), values.flatten()


def _beside(columns: Float[Tensor, "head dim key"]) -> Square:
    """All heads' columns in one matrix, head after head."""
    return columns.transpose(0, 1).flatten(1)


def _deal(h: Float[Tensor, "head dim dim"], vectors: Square) -> list[int]:
    """An order of the columns that gives each head k of them: the pairs with the largest |w_iᵀ H_h v_i| first."""
    count = h.shape[-1] // len(h)
    left = torch.linalg.inv_ex(vectors)[0].nan_to_num()
    scores = (left @ (h @ vectors)).diagonal(dim1=-2, dim2=-1).abs()
    dealt: list[list[int]] = [[] for _ in range(len(h))]
    taken: set[int] = set()
    for flat in scores.flatten().argsort(descending=True).tolist():
        head, column = divmod(flat, scores.shape[1])
        if column not in taken and len(dealt[head]) < count:
            dealt[head].append(column)
            taken.add(column)
    return [column for columns in dealt for column in columns]


_BASES = {"eigen": _eigen_basis, "split": _split_basis, "symmetric": _symmetric_basis}
