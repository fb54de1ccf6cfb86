"""`from_weights` where query heads share value heads, or values have fewer features than the model.

Heads (i, 1) … (i, r) of a group have H_ij = (W_V^i W_proj^ij)ᵀ, to be fitted by V_i Λ_ij U_iᵀ with columns that they
share. This is exact where one basis serves all H_ij of the group, and then it serves the mixture Σ_j c_j H_ij too: its
eigenvectors are tried first. For `eigen` the values keep their span, and Φ is what heads write outside it.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from unsmooth.control.bounds import Bound
from unsmooth.control.fitting.layer import EXACT, Fitted, Pair, beside, distances, semidefinite, symmetric_basis
from unsmooth.control.fitting.shared_basis import bounded_least_squares
from unsmooth.control.forms import Form

Values = Float[Tensor, "group dim key"]
Projections = Float[Tensor, "group query key dim"]
Sign = Float[Tensor, " one"]

#: Values that (nearly) depend on each other get singular values of at least this share of the largest.
_LEAST = 1e-5


def fit_grouped(w_v: Values, w_proj: Projections, form: Form, bound: Bound, sign: Sign) -> Fitted:
    """Θ, ψ and Φ whose heads are near H_ij, given in float64; exact where these satisfy the form."""
    if form.name == "symmetric":
        q = symmetric_basis(w_v, _mixture(w_proj), sign)[0].unflatten(1, (len(w_v), -1)).transpose(0, 1)
        return _fitted(w_v, w_proj, (q, q), form, bound, sign)
    if form.name == "split":
        v = _congruent(w_v, w_proj, sign)
        return _fitted(w_v, w_proj, (v, v), form, bound, sign)
    values = _independent(w_v)
    exact = _fitted(w_v, w_proj, _dual(values @ _eigenvectors(_mixture(w_proj) @ values)), form, bound, sign)
    if exact.heads <= EXACT:
        return exact
    # Nothing is exact. Columns that are orthonormal in each group came as near (in five layers of SmolLM2, to 0.004)
    # as the eigenvectors did, with condition numbers of 3 to 5 instead of 130 to 350.
    return _fitted(w_v, w_proj, _dual(_orthonormal(values, w_proj)), form, bound, sign)


def _fitted(
    w_v: Values, w_proj: Projections, columns: tuple[Values, Values], form: Form, bound: Bound, sign: Sign
) -> Fitted:
    """The best Λ for these columns of U and V, and Φ for what the heads write outside of V."""
    (u, v), (groups, count) = columns, w_proj.shape[:2]
    gram = ((u.mT @ u) * (v.mT @ v))[:, None].expand(-1, count, -1, -1).flatten(0, 1)
    pull = ((u.mT @ w_v)[:, None] * (w_proj @ v[:, None]).mT).sum(-1).flatten(0, 1)  # u_mᵀ W_V^i W_proj^ij v_m
    split = form.name == "split"

    def admit(values: Tensor) -> Tensor:
        return sign * (sign * values).clamp(min=0.0) if split else bound.nearest(count * values, sign) / count

    values = bounded_least_squares(gram, pull, admit, torch.zeros_like(pull), 500).unflatten(0, (groups, count))
    if split and bound.limit is not None:
        # What exceeds the bound on Λ goes into the length of V's columns, which is free.
        excess = (count * values.abs().amax(1) / bound.limit).clamp(min=1.0)
        v, values = v * excess.sqrt()[:, None], values / excess[:, None]
    theta, psi = beside(v), bound.to_psi(bound.nearest(count * values, sign), sign).flatten()
    tall = form.outside and theta.shape[1] < theta.shape[0]
    phi = ((torch.linalg.pinv(u) @ w_v)[:, None] @ w_proj).flatten(0, 2) if tall else None
    ours_v, ours_proj = form.assemble(theta, bound.to_lambda(psi, sign) / count, groups, phi)
    ours = ours_v.unflatten(1, (groups, -1)).transpose(0, 1), ours_proj.unflatten(0, (groups, count, -1))
    return Fitted(theta, psi, *distances(_per_head(*ours), _per_head(w_v, w_proj)), phi)


def _per_head(w_v: Values, w_proj: Projections) -> Pair:
    return w_v.repeat_interleave(w_proj.shape[1], 0), w_proj.flatten(0, 1)


def _mixture(w_proj: Projections) -> Float[Tensor, "group key dim"]:
    """Σ_j c_j W_proj^ij with positive, unequal c_j: zero only where every head of one sign is, and without ties."""
    weights = 1 + 0.5 * torch.arange(w_proj.shape[1], dtype=w_proj.dtype).sin()
    return torch.einsum("j,ijkd->ikd", weights, w_proj)


def _independent(w_v: Values) -> Values:
    """The values with independent columns, changed only where they are not."""
    u, sizes, w = torch.linalg.svd(beside(w_v), full_matrices=False)
    least = _LEAST * float(sizes[0]) or 1.0
    return w_v if sizes[-1] >= least else (u * sizes.clamp(min=least) @ w).unflatten(1, (len(w_v), -1)).transpose(0, 1)


def _dual(u: Values) -> tuple[Values, Values]:
    """U and V with VᵀU = I over all groups, and V's columns of length 1."""
    v = torch.linalg.pinv(beside(u)).mT
    length = v.norm(dim=0)
    return u * length.unflatten(0, (len(u), 1, -1)), (v / length).unflatten(1, (len(u), -1)).transpose(0, 1)


def _eigenvectors(square: Float[Tensor, "group key key"]) -> Float[Tensor, "group key key"]:
    """Real ones; a complex pair gives its plane."""
    values, vectors = torch.linalg.eig(square)
    return torch.where(values.imag[:, None] < 0, vectors.imag, vectors.real)


def _orthonormal(w_v: Values, w_proj: Projections) -> Values:
    """Of the values' span in each group: eigenvectors of the symmetric half of what Σ_j H_ij does there."""
    q = torch.linalg.qr(w_v)[0]
    inner = q.mT @ w_v @ (w_proj.sum(1) @ q)
    return q @ torch.linalg.eigh(inner + inner.mT)[1]


def _congruent(w_v: Values, w_proj: Projections, sign: Sign) -> Values:
    """V_i with H_ij near V_i Λ_ij V_iᵀ for all j: whiten the semidefinite part of Σ_j H_ij, take a mixture's axes."""
    key = w_v.shape[-1]
    vectors, values = semidefinite(w_v, w_proj.sum(1), sign)
    sizes = values[:, :key].clamp(min=0.0)
    root = vectors[:, :, :key] * sizes.clamp(min=_LEAST * float(sizes.max()) or 1.0).sqrt()[:, None]
    white = torch.linalg.pinv(root)
    inner = white @ w_v @ (_mixture(w_proj) @ white.mT)
    return root @ torch.linalg.eigh(inner + inner.mT)[1]
