"""Singular values through the smaller Gram matrix, and the GPU kernel's algorithm."""

from __future__ import annotations

import pytest
import torch
from reference import metrics as reference

from unsmooth.metrics.features import ONE_BY_ONE, Features, keep
from unsmooth.metrics.kernels import eigenvalues as kernel
from unsmooth.metrics.kernels.reduce import cuda_reduce
from unsmooth.metrics.spectrum import split_leading
from unsmooth.metrics.statistics import reduce_tokens
from unsmooth.metrics.workers import even_slices, spread


@pytest.mark.parametrize("shape", [(3, 8, 20), (3, 20, 8), (3, 8, 8), (3, 1, 5), (3, 5, 1)])
@pytest.mark.parametrize("spread_of", [1.0, 1e-3, 1e-5])
def test_singular_values_are_those_of_the_svd(shape: tuple[int, ...], spread_of: float) -> None:
    x = torch.randn(shape[0], 1, shape[2], dtype=torch.float64) + spread_of * torch.randn(shape, dtype=torch.float64)
    truth = torch.linalg.svdvals(x)
    torch.testing.assert_close(Features(x).singular_values(), truth, rtol=1e-6, atol=1e-12)


def test_the_leading_pair_is_split_off_only_near_rank_one() -> None:
    ordinary = torch.randn(7, 9, dtype=torch.float64)
    collapsed = torch.randn(1, 9, dtype=torch.float64) + 1e-5 * ordinary
    rest, leading = split_leading(torch.stack([ordinary, collapsed, torch.zeros(7, 9, dtype=torch.float64)]))
    assert (leading > 0).tolist() == [False, True, False]
    torch.testing.assert_close(rest[0], ordinary)
    assert float(leading[1].sqrt()) == pytest.approx(float(torch.linalg.svdvals(collapsed)[0]), rel=1e-12)
    torch.testing.assert_close(
        torch.linalg.svdvals(rest[1])[:-1], torch.linalg.svdvals(collapsed)[1:], rtol=1e-6, atol=0
    )


def test_splitting_changes_no_value_where_both_ways_are_exact() -> None:
    x = torch.randn(2, 1, 30, dtype=torch.float64) + 1e-4 * torch.randn(2, 12, 30, dtype=torch.float64)
    asked = x.clone().requires_grad_()  # takes the route without a question, as on a GPU
    torch.testing.assert_close(Features(asked).singular_values().detach(), Features(x).singular_values())


@pytest.mark.parametrize("rows", [1, 2, 3, 9, 24])
def test_the_kernels_algorithm_finds_all_eigenvalues(rows: int) -> None:
    x = torch.randn(rows, 40, dtype=torch.float64) * torch.logspace(0, -6, 40, dtype=torch.float64)
    matrix = x @ x.mT
    truth = torch.linalg.eigvalsh(matrix).clamp(min=0).sqrt()
    found = reference.tridiagonal_eigenvalues(matrix).sqrt()
    assert float((found - truth).abs().max() / truth.max()) < 1e-8


def test_the_kernels_algorithm_survives_rank_one_zero_and_diagonal_matrices() -> None:
    row = torch.randn(6, 1, dtype=torch.float64)
    for matrix in (row @ row.mT, torch.zeros(6, 6), torch.diag(torch.arange(6.0)).double()):
        truth = torch.linalg.eigvalsh(matrix.double()).clamp(min=0).sqrt()
        torch.testing.assert_close(reference.tridiagonal_eigenvalues(matrix).sqrt(), truth, rtol=0, atol=1e-7)


@pytest.mark.parametrize("limit", [49_152, 101_376, 166_912, 232_448])
def test_a_kernel_variant_always_fits_its_matrix_and_the_device(limit: int) -> None:
    for side in range(1, kernel.LARGEST + 1):
        shape = kernel.choose_shape(side, limit)
        if shape is not None:
            assert side <= 32 * shape.tiles
            assert shape.shared_bytes(side) <= limit
    assert kernel.choose_shape(kernel.LARGEST + 1, limit) is None


def test_work_is_spread_in_order() -> None:
    assert spread(lambda part: part * 2, [1, 2, 3]) == [2, 4, 6]
    assert even_slices(0, 2) == [slice(0, 0)]
    assert [len(range(10)[part]) for part in even_slices(10, 4)] == [3, 3, 2, 2]


cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")


@cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(3, 197, 768), (2, 33, 301), (1, 700, 64)])
def test_the_reduction_kernel_agrees_with_torch(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x, mask = torch.randn(shape, device="cuda").to(dtype) + 1, torch.rand(shape[:2], device="cuda") < 0.7
    hidden = torch.where(mask[..., None], x, torch.nan)
    for tokens, kept in ((x, None), (hidden, mask)):
        found = cuda_reduce(tokens, kept)
        assert found is not None
        for one, two in zip(found, reduce_tokens(tokens, kept), strict=True):
            torch.testing.assert_close(one, two, rtol=1e-12, atol=1e-12)


@cuda
@pytest.mark.parametrize("side", [1, 2, 33, 64, 100, 197, 216, 217, 257, 400, 512])
def test_the_kernel_agrees_with_lapack(side: int) -> None:
    x = torch.randn(5, side, 2 * side, dtype=torch.float64) * torch.logspace(0, -5, 2 * side, dtype=torch.float64)
    x[1], x[2] = x[1, :1], 0
    matrix = x @ x.mT
    matrix[3] = torch.nan
    found = kernel.cuda_eigenvalues(matrix.cuda())
    assert found is not None
    truth = torch.linalg.eigvalsh(torch.where(matrix.isfinite(), matrix, 0.0)).clamp(min=0).sqrt()
    error = (found.cpu().sqrt() - truth).abs().amax(-1) / truth.amax(-1)
    assert float(error[[0, 1, 4]].max()) < 1e-7
    assert (found[2] == 0).all()
    assert found[3].isnan().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gram_matrices_of_large_samples_are_formed_one_by_one(dtype: torch.dtype) -> None:
    x = torch.randn(2, 3, 100, 170).to(dtype)
    mask = torch.rand(2, 3, 100) < 0.7
    assert x[0, 0].numel() >= ONE_BY_ONE
    for kept, tokens in ((None, x), (mask, torch.where(mask[..., None], x, torch.nan))):
        f = Features(tokens, kept)
        wide = keep(x.double(), kept)
        torch.testing.assert_close(f.product, wide @ wide.mT, rtol=1e-12, atol=1e-9)
        assert f._x is None  # nothing was widened for it
        torch.testing.assert_close(f.hfc_square, keep(wide - f.mean[..., None, :], kept).square().sum((-2, -1)))
        torch.testing.assert_close(f.lfc_square, f.count * f.mean.square().sum(-1))
