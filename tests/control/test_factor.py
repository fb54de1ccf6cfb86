"""Cholesky-QR against Householder QR, the inverse against LU, and their derivatives."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.control import householder_q
from torch import Tensor

from unsmooth.control.factor import dependent, gram_cholesky, inverse, orthogonal
from unsmooth.metrics.tolerance import tolerance


def matrices(seed: int, layers: int, dim: int, condition: float, dtype: torch.dtype) -> Tensor:
    """Random matrices of a given condition number."""
    generator = torch.Generator().manual_seed(seed)
    u, v = (torch.linalg.qr(torch.randn(layers, dim, dim, generator=generator, dtype=torch.float64))[0] for _ in "uv")
    sizes = torch.logspace(0, -torch.log10(torch.tensor(condition)).item(), dim, dtype=torch.float64)
    return (u * sizes @ v.mT).to(dtype)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**31), st.integers(1, 3), st.integers(2, 40), st.sampled_from([1.0, 1e2, 1e4]))
def test_q_is_the_one_of_a_householder_qr_with_positive_diagonal(
    seed: int, layers: int, dim: int, condition: float
) -> None:
    theta = matrices(seed, layers, dim, condition, torch.float32)
    expected = householder_q(theta.double())
    torch.testing.assert_close(orthogonal(theta).double(), expected, rtol=0, atol=tolerance(torch.float32, dim))


@pytest.mark.parametrize(("dtype", "condition"), [(torch.float32, 1e5), (torch.float32, 1e7), (torch.float64, 1e7)])
def test_q_is_orthogonal_to_rounding_even_when_theta_is_ill_conditioned(dtype: torch.dtype, condition: float) -> None:
    q = orthogonal(matrices(0, 4, 48, condition, dtype))
    torch.testing.assert_close(q.mT @ q, torch.eye(48, dtype=dtype).expand_as(q), rtol=0, atol=tolerance(dtype, 48))


def test_passing_through_a_singular_matrix_never_gives_nan() -> None:
    """A column that crosses the span of the others: Q jumps there, but stays orthogonal on both sides."""
    theta = matrices(4, 1, 24, 10.0, torch.float64)[0]
    inside = theta[:, :-1] @ torch.randn(23, dtype=torch.float64)
    sides = []
    for distance in (1e-2, 1e-5, 1e-8, 1e-10, -1e-10, -1e-8, -1e-5, -1e-2):
        near = torch.cat([theta[:, :-1], (inside + distance * theta[:, -1])[:, None]], 1)
        q = orthogonal(near)
        torch.testing.assert_close(q.mT @ q, torch.eye(24, dtype=torch.float64), rtol=0, atol=1e-10)
        sides.append(q[:, -1])
    assert torch.stack(sides[:4]).diff(dim=0).norm() < 1e-4
    torch.testing.assert_close(sides[3], -sides[4], rtol=0, atol=1e-4)


@pytest.mark.parametrize("condition", [1.0, 1e2, 1e4])
def test_inverse_is_as_good_as_lu_in_double_precision(condition: float) -> None:
    v = matrices(1, 3, 32, condition, torch.float32)
    exact = torch.linalg.inv(v.double())
    error = (inverse(v).double() - exact).norm() / exact.norm()
    assert error < tolerance(torch.float32, 32)
    single = (torch.linalg.inv(v).double() - exact).norm() / exact.norm()
    assert error <= 2 * single


@pytest.mark.parametrize("condition", [1e2, 1e6, 1e10])
def test_the_inverse_of_double_precision_loses_no_more_digits_than_the_condition_number_has(condition: float) -> None:
    v = matrices(1, 3, 32, condition, torch.float64)
    exact = torch.linalg.inv(v)
    assert (inverse(v) - exact).norm() / exact.norm() < condition * torch.finfo(torch.float64).eps


def test_columns_of_very_different_sizes_are_independent_but_may_have_no_inverse() -> None:
    theta = orthogonal(matrices(5, 3, 24, 10.0, torch.float32))
    theta[1, :, -1] *= 1e-12
    theta[2, :, -1] *= 1e-5
    assert dependent(theta, inverted=False).tolist() == [False, False, False]
    assert dependent(theta, inverted=True).tolist() == [False, True, False]


@pytest.mark.parametrize("columns", [5, 3])
@pytest.mark.parametrize("function", [orthogonal, inverse])
def test_first_and_second_derivatives_agree_with_finite_differences(function: object, columns: int) -> None:
    theta = matrices(2, 2, 5, 10.0, torch.float64)[..., :columns].clone().requires_grad_()
    assert torch.autograd.gradcheck(function, theta)
    assert torch.autograd.gradgradcheck(function, theta)


@pytest.mark.parametrize("kind", ["zero column", "twin columns", "rank one"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_singular_matrix_is_marked_and_its_neighbours_are_not(kind: str, dtype: torch.dtype) -> None:
    theta = matrices(3, 3, 16, 10.0, dtype)
    if kind == "zero column":
        theta[1, :, 4] = 0
    elif kind == "twin columns":
        theta[1, :, 4] = theta[1, :, 9]
    else:
        theta[1] = theta[1, :, :1]
    q, _, singular = gram_cholesky(theta)
    assert singular.tolist() == [False, True, False]
    assert q[1].isnan().all()
    assert q[[0, 2]].isfinite().all()
