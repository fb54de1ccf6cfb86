"""`from_weights` where each query head has its own values: the nearest admissible spectrum of a layer.

Outputs depend on each head's H_h = (W_V^h W_proj^h)ᵀ, so the heads are fitted; where they are far from the
constraint but the layer's whole H = Σ_h H_h satisfies it, H is fitted exactly and its eigenvectors are dealt out to the
heads that use them most. Where neither does, `shared_basis` looks for one that serves all heads. It runs once,
before training.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from unsmooth.control.bounds import Bound
from unsmooth.control.fitting.shared_basis import Basis, Heads, best_eigenvalues, descend
from unsmooth.control.forms import Form

#: A relative error below this is rounding of float32 weights: the constraint held already.
EXACT = 1e-4

Values = Float[Tensor, "head dim key"]
Projections = Float[Tensor, "head key dim"]
Pair = tuple[Values, Projections]
Square = Float[Tensor, "dim dim"]
Vector = Float[Tensor, " dim"]
Sign = Float[Tensor, " one"]


@dataclass(frozen=True)
class Fit:
    """Relative Frobenius errors of one layer: over its heads (what outputs depend on) and of Σ_h H_h.

    Absolute ones where H is zero. `bias` is that of Σ_h b_v W_proj^h, where no b_proj could take up what changes of it.
    """

    layer: str
    heads: float
    total: float
    bias: float = 0.0


@dataclass(frozen=True)
class Fitted:
    """Θ, ψ and (where form and shape have it) Φ of one layer, with the errors of the fit."""

    theta: Float[Tensor, "dim value"]
    psi: Float[Tensor, " feature"]
    heads: float
    total: float
    phi: Float[Tensor, "feature dim"] | None = None


def fit_layer(w_v: Values, w_proj: Projections, form: Form, bound: Bound, sign: Sign) -> Fitted:
    """Θ and ψ whose heads are nearest to H_h = (W_V^h W_proj^h)ᵀ, given in float64."""
    given = w_v, w_proj
    vectors, values = _BASES[form.name](w_v, w_proj, sign)
    tried = [_measure(given, vectors, values, form, bound, sign)]
    if tried[0].heads <= EXACT or len(w_v) == 1:
        return tried[0]
    whole = _whole(w_v, w_proj)
    if _may_be_admissible(whole.mT, form, bound, sign):
        vectors, values = _BASES[form.name](whole[None], torch.eye(len(whole), dtype=whole.dtype)[None], sign)
        order = _deal((w_v @ w_proj).mT, vectors)
        tried.append(_measure(given, vectors[:, order], values[order], form, bound, sign))
    best = tried[0]  # of `split`, where every head has a basis of its own, there is no better one
    if form.name != "split":
        basis = _shared_basis(given, tried, form, bound, sign)
        best = _measure(given, basis.v, basis.eigenvalues.flatten(), form, bound, sign)
    # Heads that nearly satisfy the form (those of a checkpoint in half precision) are not given up for their sum.
    exact = [fit for fit in tried[1:] if fit.total <= EXACT and not fit.heads > 10 * best.heads]
    return exact[0] if exact else best


def _shared_basis(given: Pair, tried: list[Fitted], form: Form, bound: Bound, sign: Sign) -> Basis:
    """The best of: what was tried, an orthogonal basis, and where descent leads from the best of these."""
    w_v, w_proj = given
    left, right = beside(w_proj.mT), w_v.mT.flatten(0, 1)
    heads = Heads(left, right, len(w_v), lambda values: bound.nearest(values, sign), form.name == "symmetric")
    starts = [
        best_eigenvalues(heads, fit.theta, bound.to_lambda(fit.psi, sign).unflatten(0, (len(w_v), -1)))
        for fit in tried
        if heads.orthogonal or fit.heads < 1  # eigenvectors of trained heads are often no basis to build on, or none
    ]
    if not heads.orthogonal:
        starts.append(best_eigenvalues(heads, symmetric_basis(w_v, w_proj, sign)[0]))
    start = min(starts, key=_loss)
    found = descend(heads.single(), best_eigenvalues(heads.single(), start.v.float(), start.eigenvalues.float(), 0))
    v = torch.linalg.qr(found.v.double())[0] if heads.orthogonal else found.v.double()
    return min(start, best_eigenvalues(heads, v, found.eigenvalues.double()), key=_loss)


def _loss(basis: Basis) -> float:
    return basis.loss


def _may_be_admissible(whole: Square, form: Form, bound: Bound, sign: Sign) -> bool:
    """Whether Σ_h H_h passes what is quick to check, before its eigenvalues are computed.

    For `eigen` these are inequalities between p_n = tr Hⁿ = Σ λⁿ: p_3² ≤ p_2 p_4 where all λ are real, and
    p_2² ≤ p_1 p_3 with p_1, p_3 ≥ 0 where no λ is negative; with room for rounding of float32 weights.
    """
    if form.name != "eigen":
        return _relative(whole.mT, whole) <= EXACT
    unit = sign * whole / (whole.norm() or 1.0)
    square, room = unit @ unit, torch.finfo(torch.float32).eps
    p1, p2 = float(unit.trace()), float(square.trace())
    p3, p4 = float((square * unit.mT).sum()), float((square * square.mT).sum())
    if min(p2, p4) < -room or max(abs(p3) - room, 0.0) ** 2 > (p2 + room) * (p4 + room):
        return False
    return not bound.signed or (min(p1, p3) >= -room and max(p2 - room, 0.0) ** 2 <= (p1 + room) * (p3 + room))


def distances(ours: Pair, theirs: Pair) -> tuple[float, float]:
    """Relative errors of the heads H_h and of Σ_h H_h."""
    heads = _relative(ours[0] @ ours[1], theirs[0] @ theirs[1])
    return heads, _relative(_whole(*ours), _whole(*theirs))


def _measure(given: Pair, vectors: Square, values: Vector, form: Form, bound: Bound, sign: Sign) -> Fitted:
    admissible = bound.nearest(values, sign)
    if form.name == "split":
        # What exceeds the bound on Λ goes into the length of V's columns, which is free.
        vectors = vectors * torch.where(admissible == 0, 1.0, values / admissible).clamp(min=0.0).sqrt()
    psi = bound.to_psi(admissible, sign)
    w_v, w_proj = form.assemble(vectors, bound.to_lambda(psi, sign))
    count = len(given[0])
    fitted = w_v.unflatten(1, (count, -1)).transpose(0, 1), w_proj.unflatten(0, (count, -1))
    return Fitted(vectors, psi, *distances(fitted, given))


def _relative(ours: Tensor, theirs: Tensor) -> float:
    size = float(theirs.norm())
    return float((ours - theirs).norm()) / (size or 1.0)


def _whole(w_v: Values, w_proj: Projections) -> Square:
    """Σ_h W_V^h W_proj^h as one product."""
    return beside(w_v) @ w_proj.flatten(0, 1)


def _eigen_basis(w_v: Values, w_proj: Projections, sign: Sign) -> tuple[Square, Vector]:
    """Eigenvectors of each head beside each other; a complex pair gives its plane and its real part twice.

    The nearest admissible value to a complex λ is the one nearest to Re λ. Columns of zero eigenvalues span
    the null space of Σ_h H_h, as they must for V⁻¹ to be right.
    """
    # H y' = λ y' with y' = W_projᵀ y and (W_proj W_V)ᵀ y = λ y: a k×k problem per head.
    values, vectors = torch.linalg.eig((w_proj @ w_v).mT)
    # Of each pair of conjugates (neighbours in LAPACK's order) the first gives Re y, the second Im y.
    real = torch.where(values.imag[:, None, :] < 0, vectors.imag, vectors.real)
    v, eigenvalues = beside(w_proj.mT @ real), values.real.flatten()
    sizes = values.abs().flatten()
    zero = sizes <= EXACT * 1e-4 * sizes.max()
    if bool(zero.any()):
        v[:, zero] = torch.linalg.svd((w_v @ w_proj).sum(0).mT)[2][-int(zero.sum()) :].mT
    return v / v.norm(dim=0), eigenvalues


def semidefinite(w_v: Values, w_proj: Projections, sign: Sign) -> tuple[Tensor, Tensor]:
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
    vectors, values = semidefinite(w_v, w_proj, sign)
    return beside(vectors[:, :, :key]), (sign * values[:, :key].clamp(min=0.0)).flatten()


def symmetric_basis(w_v: Values, w_proj: Projections, sign: Sign) -> tuple[Square, Vector]:
    """Orthogonal Q with Q_h Λ_h Q_hᵀ near H_h: the eigenvectors of one head; of several, the polar factor of all
    side by side, weighted by their eigenvalues squared (one step of ascent of Σ_h tr(Λ_h Q_hᵀ H_h Q_h), which is
    convex in Q where H_h is semidefinite).
    """
    vectors, values = semidefinite(w_v, w_proj, sign)
    key = w_proj.shape[1]
    q = vectors[:, :, :key]
    if len(q) > 1:
        u, _, w = torch.linalg.svd(beside(q * values[:, None, :key].clamp(min=0.0).square()), full_matrices=False)
        q = (u @ w).unflatten(1, (-1, key)).transpose(0, 1)
    values = (q * (w_proj.mT @ (w_v.mT @ q))).sum(1)
    return beside(q), values.flatten()


def beside(columns: Float[Tensor, "head dim key"]) -> Square:
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


_BASES = {"eigen": _eigen_basis, "split": _split_basis, "symmetric": symmetric_basis}
