"""Dense matrices where the library is matrix-free or works on spectra."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def update_matrix(h: Tensor, a: Tensor, residual: bool = True) -> Tensor:
    """`I + H ⊗ A` of eq. (2), acting on columns stacked under each other."""
    product = torch.kron(h.contiguous(), a.contiguous())
    return torch.eye(len(product), dtype=product.dtype) + product if residual else product


def iterate_by_squaring(h: Tensor, a: Tensor, x: Tensor, doublings: int = 45, residual: bool = True) -> Tensor:
    """The direction of X after 2^doublings layers, from the dense matrix of eq. (2) alone."""
    power = update_matrix(h, a, residual)
    for _ in range(doublings):
        power = power @ power
        power = power / power.norm()
    stacked = power @ x.T.reshape(-1)  # vec stacks columns
    return (stacked / stacked.norm()).reshape(x.shape[1], x.shape[0]).T


def left_fixed_vector(a: Tensor) -> Tensor:
    """A row vector π with π A = π and π·1 = 1; π X is the type (1) amplitude, which evolves on its own."""
    n = len(a)
    system = torch.cat([a.T - torch.eye(n, dtype=a.dtype), torch.ones(1, n, dtype=a.dtype)])
    target = torch.zeros(n + 1, 1, dtype=a.dtype)
    target[-1] = 1
    return torch.linalg.lstsq(system, target, driver="gelsd").solution[:, 0]


def iterated_verdict(h: Tensor, a: Tensor, x: Tensor, margin: float, residual: bool = True) -> str:
    """Smoothing, sharpening or mixed, as enough layers show it for terms that differ by `margin` nats per layer.

    Not more than needed: the powers of a defective matrix lose their leading term to rounding in the end.
    """
    doublings = min(max(math.ceil(math.log2(max(400 / margin, 1))), 8), 45)
    end = iterate_by_squaring(h, a, x, doublings, residual)
    high = float((end - end.mean(0)).norm())
    perron = float((left_fixed_vector(a) @ end).norm())
    if high < 1e-6:
        return "smoothing"
    return "sharpening" if perron < 1e-6 else "mixed"


def dense_layer_growth(
    attention: Tensor, weights: Tensor, scale: float = 1.0, after: Tensor | None = None
) -> tuple[float, float]:
    """(ρ_L, ρ_H) of `(X + s Σ A_h X W_h) M`, from the (n−1)d × (n−1)d matrix on the space orthogonal to 1."""
    n, dim = attention.shape[-1], weights.shape[-1]
    ones = torch.ones(n, 1, dtype=attention.dtype)
    basis = torch.linalg.qr(torch.cat([ones, torch.eye(n, dtype=attention.dtype)[:, 1:]], 1)).Q[:, 1:]
    high = torch.eye((n - 1) * dim, dtype=attention.dtype)
    low = torch.eye(dim, dtype=attention.dtype)
    for a, w in zip(attention, weights, strict=True):
        high = high + scale * torch.kron(w.T.contiguous(), basis.T @ a @ basis)
        low = low + scale * w
    if after is not None:
        high = torch.kron(after.T.contiguous(), torch.eye(n - 1, dtype=attention.dtype)) @ high
        low = low @ after
    return float(torch.linalg.eigvals(low).abs().max()), float(torch.linalg.eigvals(high).abs().max())


def deviations_kept(
    attention: Tensor,
    z: Tensor,
    mask: Tensor | None = None,
) -> Tensor:
    """`α_h = ⟨PZ, P A_h Z⟩ / ‖PZ‖²`: what each head's attention leaves of the deviations of z from their mean."""
    kept = torch.ones_like(z[..., 0]) if mask is None else mask.to(z.dtype)
    high = (z - (z * kept[..., None]).sum(-2, keepdim=True) / kept.sum(-1)[:, None, None]) * kept[..., None]
    gram = high @ high.mT  # ⟨PZ, A_h Z⟩ = ⟨A_h, PZ (PZ)ᵀ⟩, as A_h 1 = 1
    size = gram.diagonal(dim1=-2, dim2=-1).sum(-1)
    return (attention * gram[:, None]).sum((-2, -1)) / torch.where(size > 0, size, 1)[:, None]


def mean_field(
    attention: Tensor,
    alpha: Tensor,
    mask: Tensor | None = None,
) -> Tensor:
    """`α_h P + 1π_hᵀ`: attention that gives the mean token what A_h gives it, and scales HFC by one number.

    π_h is the column mean of A_h, and α_h what `deviations_kept` finds (docs/theory.md, section 7).
    """
    kept = attention.new_ones(attention.shape[0], attention.shape[-1]) if mask is None else mask.to(attention.dtype)
    among, count = kept[:, :, None] * kept[:, None, :], kept.sum(-1)
    centring = torch.diag_embed(kept) - among / count[:, None, None]
    mean = (attention * kept[:, None, :, None]).sum(-2) / count[:, None, None]
    return alpha[..., None, None] * centring[:, None] + kept[:, None, :, None] * mean[:, :, None, :]


def uniform(attention: Tensor, mask: Tensor | None = None) -> Tensor:
    """`11ᵀ/n` for every head: attention that looks at all kept tokens alike leaves the mean path alone."""
    kept = attention.new_ones(attention.shape[0], attention.shape[-1]) if mask is None else mask.to(attention.dtype)
    among = kept[:, :, None] * kept[:, None, :] / kept.sum(-1)[:, None, None]
    return among[:, None].expand_as(attention)
