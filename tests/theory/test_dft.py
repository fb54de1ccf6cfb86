"""The paper's Fourier view of LFC: right with the usual DFT matrix, not with the one it prints."""

from __future__ import annotations

import pytest
import torch

from unsmooth.metrics.tolerance import tolerance

SIZES = [2, 3, 8, 17, 64]


def dft(n: int) -> torch.Tensor:
    """`F_kl = exp(−2πi (k−1)(l−1)/n)`."""
    k = torch.arange(n, dtype=torch.float64)
    return torch.exp(-2j * torch.pi * k[:, None] * k / n)


@pytest.mark.parametrize("n", SIZES)
def test_the_lowest_frequency_of_the_dft_is_the_mean_token(n: int) -> None:
    x = torch.randn(n, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(n))
    f = dft(n)
    keep = torch.zeros(n, dtype=torch.complex128)
    keep[0] = 1
    low = torch.linalg.solve(f, keep[:, None] * (f @ x.to(f.dtype)))
    high = torch.linalg.solve(f, (1 - keep)[:, None] * (f @ x.to(f.dtype)))
    mean = x.mean(0).expand_as(x)
    close = {"rtol": 0, "atol": 30 * tolerance(torch.float64, n)}
    torch.testing.assert_close(low, mean.to(f.dtype), **close)
    torch.testing.assert_close(high, (x - mean).to(f.dtype), **close)


@pytest.mark.parametrize("n", SIZES)
def test_the_matrix_that_the_paper_prints_has_no_inverse(n: int) -> None:
    """`F_kl = exp(2πi (k−1)(l−1))`, without the division by n: whole turns, so 1 everywhere."""
    k = torch.arange(n, dtype=torch.float64)
    printed = torch.exp(2j * torch.pi * k[:, None] * k)
    torch.testing.assert_close(printed, torch.ones_like(printed), rtol=0, atol=1e-9)
    assert int(torch.linalg.matrix_rank(printed, tol=1e-6 * n)) == 1


def test_hfc_and_lfc_of_the_metrics_are_those_of_the_dft() -> None:
    import unsmooth

    x = torch.randn(12, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    spectrum = torch.fft.fft(x, dim=0)
    expected = spectrum[1:].norm() / spectrum[0].norm()  # Parseval: the DFT keeps norms up to √n
    assert float(unsmooth.hfc_lfc_ratio(x)) == pytest.approx(float(expected), rel=1e-9)
