"""How far H is from normal: where eigenvalues alone stop telling what one step does."""

from __future__ import annotations

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from unsmooth.metrics.tolerance import tolerance
from unsmooth.metrics.workers import spread
from unsmooth.theory.spectrum import head_eigenvalues

_MEETING = 4.0  # times what rounding does to first order: how far it moves eigenvalues that meet


def departure_from_normality(
    w_v: Float[Tensor, "head dim key"],
    w_proj: Float[Tensor, "head key dim"],
    eigenvalues: Complex[Tensor, "head key"] | None = None,
) -> Float[Tensor, " head"]:
    """Henrici's `√(‖H‖_F² − Σ|λ|²) / ‖H‖_F` per head, 0 for a normal H, from k×k matrices only.

    >>> nilpotent = (torch.tensor([[[1.0], [0.0]]]), torch.tensor([[[0.0, 1.0]]]))
    >>> [round(d, 6) for d in departure_from_normality(*nilpotent).tolist()]
    [1.0]
    """
    v, p = w_v.detach().double(), w_proj.detach().double()
    # ‖W_V W_proj‖² = tr(W_VᵀW_V W_proj W_projᵀ)
    size = ((v.mT @ v) * (p @ p.mT)).sum((-2, -1)).cpu()
    found = head_eigenvalues(v, p) if eigenvalues is None else eigenvalues
    return _ratio(size, found.abs().square().sum(-1))


def layer_departure(total: Float[Tensor, "dim dim"], eigenvalues: Complex[Tensor, " dim"]) -> float:
    """The same for `Σ_h W_h`, whose eigenvalues are known."""
    return float(_ratio(total.double().square().sum().cpu(), eigenvalues.abs().square().sum()))


def head_conditions(w_v: Float[Tensor, "head dim key"], w_proj: Float[Tensor, "head key dim"]) -> list[float]:
    """κ₂ of each head's eigenvectors with non-zero eigenvalue: `W_projᵀ u` for `(W_proj W_V)ᵀ u = λ u`."""
    v, p = w_v.detach().double(), w_proj.detach().double()
    # the vectors lie in the rows of W_proj, so that k×k matrices have their lengths and angles
    root = torch.linalg.qr(p.mT, mode="r").R.cpu()
    return spread(_head_condition, list(zip((p @ v).mT.cpu(), root, strict=True)))


def _head_condition(matrices: tuple[Tensor, Tensor]) -> float:
    small, root = matrices
    return condition_number(root.to(torch.complex128) @ torch.linalg.eig(small).eigenvectors)


def settled(
    values: Complex[Tensor, " size"], vectors: Complex[Tensor, "size size"], w_v: Tensor, w_proj: Tensor
) -> Complex[Tensor, " size"]:
    """Eigenvalues of `W_V W_proj` (or `W_proj W_V`), with real part 0 where rounding to 32 bits may have made it.

    To first order that is eps ‖W_V‖ ‖W_proj‖ times the eigenvalue's condition number (the length of its left
    eigenvector beside the right one), and some times that where several meet. Many at one spot are ill-conditioned: of
    eigenvalues that `edit` gathers at 0, rounding leaves up to some per cent of the largest, on either side.
    """
    inverse, failed = torch.linalg.inv_ex(vectors)
    if int(failed):
        return values
    condition = inverse.norm(dim=-1) * vectors.norm(dim=-2)
    sizes = (torch.linalg.matrix_norm(w.detach().double().cpu(), 2) for w in (w_v, w_proj))
    reach = _MEETING * torch.finfo(torch.float32).eps * next(sizes) * next(sizes) * condition
    still = values.real.abs() <= reach
    return torch.where(values.abs() <= reach, 0, torch.where(still, 1j * values.imag, values))


def settled_heads(
    w_v: Float[Tensor, "head dim key"], w_proj: Float[Tensor, "head key dim"]
) -> Complex[Tensor, "head key"]:
    """The same of every head, through the smaller of its two sides."""
    v, p = w_v.detach().double().cpu(), w_proj.detach().double().cpu()
    small = p @ v if v.shape[-1] <= v.shape[-2] else v @ p

    def solve(each: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        values, vectors = torch.linalg.eig(each[0])
        return settled(values, vectors, each[1], each[2])

    return torch.stack(spread(solve, list(zip(small, v, p, strict=True))))


def condition_number(vectors: Complex[Tensor, "size count"]) -> float:
    """κ₂ of unit columns; infinite when they are dependent."""
    lengths = vectors.norm(dim=0)
    if bool((lengths == 0).any()):
        return float("inf")
    sigma = torch.linalg.svdvals(vectors / lengths)
    return float(sigma[0] / sigma[-1])


def eigenbasis(
    h: Float[Tensor, "dim dim"], values: Complex[Tensor, " dim"], vectors: Complex[Tensor, "dim dim"]
) -> tuple[Complex[Tensor, " dim"], Complex[Tensor, "dim dim"]]:
    """Eigenvalues and eigenvectors of H in which those of a repeated 0 are an orthonormal basis of the null space.

    Any basis of it would do (grouped queries leave H many zeros), and what LAPACK returns there is made of rounding.
    """
    _, sigma, right = torch.linalg.svd(h.double())
    null = right[sigma <= tolerance(torch.float64, len(h)) * sigma[0]]
    if len(null) < 2:
        return values, vectors
    moving = values.abs().argsort(descending=True)[: len(h) - len(null)]
    together = torch.cat([vectors[:, moving], null.mT.to(vectors.dtype)], -1)
    return torch.cat([values[moving], values.new_zeros(len(null))]), together


def _ratio(size: Tensor, inside: Tensor) -> Tensor:
    return torch.where(size > 0, ((size - inside).clamp_min(0) / torch.where(size > 0, size, 1)).sqrt(), 0)
