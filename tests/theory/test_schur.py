"""The real Schur form that `edit` moves eigenvalues in."""

from __future__ import annotations

import pytest
import torch

from unsmooth.theory.schur import schur_basis


@pytest.mark.parametrize("kind", ["random", "defective", "symmetric", "zero"])
def test_a_schur_basis_is_orthogonal_and_triangular(kind: str) -> None:
    torch.manual_seed(0)
    s = torch.randn(9, 9, dtype=torch.float64)
    s = {"random": s, "symmetric": s + s.mT, "zero": 0 * s, "defective": torch.diag(torch.ones(8, dtype=s.dtype), 1)}[
        kind
    ]
    turn = torch.linalg.qr(torch.randn(9, 9, dtype=torch.float64)).Q
    s = turn @ s @ turn.mT
    u, blocks = schur_basis(s)
    t = u.mT @ s @ u
    for start, end in blocks:
        t[start:end, start:end] = 0
    assert float(t.tril().abs().max()) < 1e-10
    assert torch.allclose(u.mT @ u, torch.eye(9, dtype=s.dtype), atol=1e-12)
    assert [start for start, _ in blocks[1:]] == [end for _, end in blocks[:-1]]
