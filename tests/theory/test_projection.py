from __future__ import annotations

import pytest
import torch

from unsmooth.theory.projection import spectral_projector


def test_a_projector_keeps_its_eigenvector_and_removes_all_others() -> None:
    torch.manual_seed(0)
    h = torch.randn(7, 7, dtype=torch.float64)
    values, vectors = torch.linalg.eig(h)
    for index in range(7):
        found = spectral_projector(values, vectors, index)
        p = found.right @ found.left.mT
        torch.testing.assert_close(p @ p, p)
        torch.testing.assert_close(p @ h, h @ p)
        own = (values - values[index]).abs().minimum((values - values[index].conj()).abs()) < 1e-9
        for i in range(7):
            kept = vectors[:, i] if bool(own[i]) else torch.zeros_like(vectors[:, i])
            torch.testing.assert_close(p.to(vectors) @ vectors[:, i], kept)


def test_the_part_along_an_eigenvector_of_a_non_normal_h_is_no_cosine() -> None:
    """Along e_1 with cosine 0.1, and yet the whole of the token's own growth is there."""
    h = torch.tensor([[2.0, 5.0], [0.0, 1.0]], dtype=torch.float64)
    found = spectral_projector(*torch.linalg.eig(h), int(torch.linalg.eigvals(h).real.argmax()))
    x = torch.tensor([[0.1, 0.995]], dtype=torch.float64)
    cosine = float(x[0, 0] / x.norm())
    assert cosine == pytest.approx(0.1, abs=0.001)
    assert float(found.share(x)) == pytest.approx((0.1 + 5 * 0.995) / float(x.norm()))
    # and it is what decides: Hᵏx / 2ᵏ goes to P x
    far = torch.linalg.matrix_power(h / 2, 60) @ x[0]
    assert float(far.norm() / x.norm()) == pytest.approx(float(found.share(x)))


def test_for_a_symmetric_h_the_share_is_the_cosine_and_a_zero_token_has_none() -> None:
    torch.manual_seed(1)
    h = torch.randn(5, 5, dtype=torch.float64)
    values, vectors = torch.linalg.eigh(h + h.mT)
    found = spectral_projector(values.to(torch.complex128), vectors.to(torch.complex128), 4)
    x = torch.randn(3, 5, dtype=torch.float64)
    x[2] = 0
    expected = [*((x[:2] @ vectors[:, 4]).abs() / x[:2].norm(dim=-1)).tolist(), 0.0]
    assert found.share(x).tolist() == pytest.approx(expected)


def test_equal_eigenvalues_share_a_projector_of_their_rank() -> None:
    torch.manual_seed(2)
    basis = torch.randn(4, 4, dtype=torch.float64)
    h = basis @ torch.diag(torch.tensor([3.0, 3.0, 1.0, -1.0], dtype=torch.float64)) @ torch.linalg.inv(basis)
    values, vectors = torch.linalg.eig(h)
    found = spectral_projector(values, vectors, int(values.real.argmax()))
    p = found.right @ found.left.mT
    assert float(p.trace()) == pytest.approx(2.0)
    torch.testing.assert_close(p @ basis[:, :2], basis[:, :2])
