"""A real Schur form: in an orthogonal basis a matrix is triangular, with its eigenvalues on the diagonal.

torch has none; this one is made of eigenvectors, which is precise enough where they are independent, and found one at a
time where they are not.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def schur_basis(s: Float[Tensor, "size size"]) -> tuple[Float[Tensor, "size size"], list[tuple[int, int]]]:
    """An orthogonal U with `Uᵀ S U` block upper triangular, and its blocks: of one, or of two for a complex pair.

    From the eigenvectors where they are independent enough, else one eigenvector at a time.

    >>> s = torch.tensor([[1.0, 2.0], [0.0, 1.0]], dtype=torch.float64)
    >>> u, blocks = schur_basis(s)
    >>> float((u.mT @ s @ u).tril(-1).abs().max()) < 1e-12, blocks
    (True, [(0, 1), (1, 2)])
    """
    columns, blocks = _real_basis(s)
    u = torch.linalg.qr(torch.stack(columns, -1)).Q
    if _below(u.mT @ s @ u, blocks) <= 1e-12 * len(s) * float(torch.linalg.matrix_norm(s)):
        return u, blocks
    u, blocks, start = torch.eye(len(s), dtype=s.dtype), [], 0
    while start < len(s):
        rest = (u.mT @ s @ u)[start:, start:]
        columns, found = _real_basis(rest)
        size = found[0][1]
        left = torch.linalg.qr(torch.stack(columns[:size], -1), mode="complete").Q
        u = u @ torch.block_diag(torch.eye(start, dtype=s.dtype), left)
        blocks.append((start, start + size))
        start += size
    return u, blocks


def _real_basis(s: Tensor) -> tuple[list[Tensor], list[tuple[int, int]]]:
    """Real vectors that span the eigenvectors' spaces one after the other, and how many each has."""
    values, vectors = torch.linalg.eig(s)
    columns: list[Tensor] = []
    blocks: list[tuple[int, int]] = []
    for value, vector in zip(values.tolist(), vectors.mT, strict=True):
        if value.imag < 0:  # its conjugate stands for both
            continue
        parts = [vector.real] if value.imag == 0 else [vector.real, vector.imag]
        blocks.append((len(columns), len(columns) + len(parts)))
        columns += parts
    return columns, blocks


def _below(t: Tensor, blocks: list[tuple[int, int]]) -> float:
    """The largest entry below the diagonal blocks, which should be 0."""
    return max((float(t[end:, start:end].abs().max()) for start, end in blocks if end < len(t)), default=0.0)
