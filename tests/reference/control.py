"""A library's QR, and every head by itself."""

from __future__ import annotations

import torch
from torch import Tensor


def householder_q(theta: Tensor) -> Tensor:
    """Q of a QR decomposition whose R has a positive diagonal, by LAPACK."""
    q, r = torch.linalg.qr(theta)
    return q * r.diagonal(dim1=-2, dim2=-1).sign()[..., None, :]


def clipped_heads(h: Tensor, sign: float) -> Tensor:
    """V_h Λ_h U_h of every head: V_h its eigenvectors, U = V⁻¹ of all heads together, Λ_h the real parts, clipped."""
    key = h.shape[-1] // len(h)
    columns, values = [], []
    for head in h:
        found, vectors = torch.linalg.eig(head)
        kept = found.abs().argsort(descending=True, stable=True)[:key]
        found, vectors = found[kept], vectors[:, kept]
        columns.append(torch.where(found.imag < 0, vectors.imag, vectors.real))
        values.append(sign * (sign * found.real).clamp(0, 1))
    left = torch.linalg.inv(torch.cat(columns, 1)).unflatten(0, (len(h), key))
    return torch.stack([v * x @ u for v, x, u in zip(columns, values, left, strict=True)])
