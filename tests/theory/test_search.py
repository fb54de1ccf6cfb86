"""The search for a layer's exponent: where it ends, and what it says of what it has not found."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from reference.theory import dense_layer_growth
from theory.matrices import random_layer

from unsmooth.theory import layer_exponent
from unsmooth.theory.low_frequency import lfc_growths
from unsmooth.theory.operator import arrange


def test_a_search_cut_short_says_so() -> None:
    attention, w_v, w_proj = random_layer(2, 3, 20, 24, 8)
    found = layer_exponent(attention, (w_v, w_proj), subspace=4, max_products=6)
    assert not bool(found.converged.any())
    assert bool((found.residual > 0).all())


@pytest.mark.parametrize("which", ["modulus", "rightmost"])
@pytest.mark.parametrize("max_products", [600, 1])
def test_krylov_search_for_the_mean_agrees_with_all_eigenvalues(which: str, max_products: int) -> None:
    torch.manual_seed(3)
    weights = torch.randn(1, 400, 400, dtype=torch.float64) / 20
    steps = torch.tensor([0.2, 1.0], dtype=torch.float64)
    values = torch.linalg.eigvals(weights[0])
    expected = (1 + steps[:, None] * values).abs().amax(-1)
    expected = expected if which == "modulus" else values.real.amax().expand(2)
    (found,) = lfc_growths(arrange(weights), steps, [which], max_products)
    torch.testing.assert_close(found, expected, atol=1e-7, rtol=0)


@pytest.mark.parametrize("which", ["modulus", "rightmost"])
def test_null_space_of_a_wide_layer_is_counted(which: str) -> None:
    w_v = torch.eye(420, 400, dtype=torch.float64)[None]
    (found,) = lfc_growths(arrange((w_v, -0.5 * w_v.mT)), torch.ones(2, dtype=torch.float64), [which])
    assert found.tolist() == [1.0 if which == "modulus" else 0.0] * 2  # twenty features never move


@pytest.mark.parametrize("which", ["modulus", "rightmost"])
def test_known_eigenvalues_of_the_mean_change_nothing(which: str) -> None:
    attention, w_v, w_proj = random_layer(2, 2, 6, 5, 3)
    values = torch.linalg.eigvals((w_v @ w_proj).sum(0))
    steps = torch.tensor([0.3, 2.0], dtype=torch.float64)
    found, known = (
        layer_exponent(attention, (w_v, w_proj), scale=steps, which=which, lfc_spectrum=spectrum)
        for spectrum in (None, values)
    )
    torch.testing.assert_close(known.rho_lfc, found.rho_lfc)


@pytest.mark.parametrize("which", ["modulus", "rightmost"])
def test_a_search_of_given_accuracy_ends_when_its_residual_is_that_share_of_gamma(which: str) -> None:
    attention, w_v, w_proj = random_layer(24, 3, 16, 12, 4)
    rough, exact = (
        layer_exponent(attention, (w_v, w_proj), scale=4.0, which=which, accuracy=accuracy) for accuracy in (0.02, None)
    )
    assert bool(rough.converged.all())
    assert rough.products < exact.products
    size = 4.0 / rough.rho_hfc if which == "modulus" else 1.0  # γ is the logarithm of |1 + sθ|
    assert bool((rough.residual * size <= 0.02 * rough.exponent.abs() * (1 + 1e-9)).all())


@pytest.mark.parametrize(("seed", "n", "dim", "key"), [(29, 7, 20, 10), (47, 6, 12, 6), (27, 17, 32, 8)])
def test_a_search_of_given_accuracy_does_not_stop_at_an_eigenvalue_that_another_dominates(
    seed: int, n: int, dim: int, key: int
) -> None:
    g = torch.Generator().manual_seed(seed)
    heads = {32: 4}.get(dim, 2)
    scores = torch.randn(40, heads, n, n, generator=g, dtype=torch.float64)
    attention = scores.masked_fill(torch.ones(n, n).triu(1).bool(), -math.inf).softmax(-1)
    w_v = torch.randn(heads, dim, key, generator=g, dtype=torch.float64) / dim**0.5
    w_proj = torch.randn(heads, key, dim, generator=g, dtype=torch.float64) / (heads * key) ** 0.5
    found = layer_exponent(attention, (w_v, w_proj), scale=0.9, accuracy=0.01)
    own = attention.diagonal(dim1=-2, dim2=-1)[..., 1:]
    blocks = torch.einsum("bht,hde->btde", own, w_v @ w_proj)
    high = (1 + 0.9 * torch.linalg.eigvals(blocks)).abs().amax((-1, -2))
    assert bool(found.converged.all())
    # the start has next to nothing of the eigenvector that wins in one of these inputs
    assert float(((found.rho_hfc / high).log() / found.exponent).abs().max()) < 0.02


def nearly_causal(seed: int, leak: float, n: int = 24, dim: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    """Each token looks at itself, the one before, and by `leak` at all: nearly one Jordan block, and not causal."""
    g = torch.Generator().manual_seed(seed)
    own = 0.3 + 0.4 * torch.rand(n, generator=g, dtype=torch.float64)
    a = torch.diag(own) + torch.diag(1 - own[1:], -1)
    a[0, 0] = 1
    a = ((1 - leak) * a + leak / n).float().double()
    w = torch.randn(1, dim, dim, generator=g, dtype=torch.float64) / dim**0.5
    return (a / a.sum(-1, keepdim=True))[None], w.float().double()


@pytest.mark.parametrize("leak", [1e-3, 1e-6])
@pytest.mark.parametrize("seed", [0, 1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_search_far_from_normal_is_right_or_says_that_it_is_not(seed: int, leak: float, dtype: torch.dtype) -> None:
    """A residual of 2e-4 meant an error of 0.08 nats here, and was called converged."""
    a, w = nearly_causal(seed, leak)
    _, high = dense_layer_growth(a, w)
    found = layer_exponent(a.to(dtype), w.to(dtype))
    error = abs(math.log(high) - float(found.rho_hfc.log()))
    assert error < 2e-3 or not bool(found.converged)
    assert error < 0.03


def random_non_normal(seed: int, n: int = 16, dim: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    scores = 3 * torch.randn(1, n, n, generator=g, dtype=torch.float64)
    a = scores.masked_fill(torch.ones(n, n).triu(1).bool(), -12).softmax(-1)
    v, upper = (torch.randn(dim, dim, generator=g, dtype=torch.float64) for _ in range(2))
    h = torch.linalg.solve(v.mT, (v * torch.linspace(-1, 1, dim, dtype=torch.float64)).mT).mT
    return a, (h + 3 * upper.triu(1))[None]


@pytest.mark.parametrize("seed", [0, 5, 6, 7, 14])
def test_the_accuracy_asked_for_is_kept_by_non_normal_weights(seed: int) -> None:
    """Seed 7 was off by 2.4 % of γ and seed 6 by 4.7 % where 1 % was asked for."""
    a, w = random_non_normal(seed)
    low, high = dense_layer_growth(a, w)
    found = layer_exponent(a.float(), w.float(), accuracy=0.01)
    assert bool(found.converged)
    assert float(found.exponent) == pytest.approx(math.log(high / low), rel=0.015)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 12), st.integers(1, 4), st.integers(2, 24), st.floats(-1.5, 0.5))
@example(7805, 11, 3, 3, -0.5)
def test_of_small_blocks_all_eigenvalues_of_a_causal_layer_are_looked_at(
    seed: int, n: int, heads: int, dim: int, size: float
) -> None:
    """A search may end at a block that another one dominates, and call it converged."""
    g = torch.Generator().manual_seed(seed)
    scores = torch.randn(2, heads, n, n, generator=g, dtype=torch.float64)
    attention = scores.masked_fill(torch.ones(n, n).triu(1).bool(), -math.inf).softmax(-1)
    weights = 10**size * torch.randn(heads, dim, dim, generator=g, dtype=torch.float64) / dim**0.5
    steps = torch.tensor([1.0, 0.3], dtype=torch.float64)
    found = layer_exponent(attention.float(), weights.float(), scale=steps, accuracy=0.01)
    own = torch.einsum("bht,hij->btij", attention.diagonal(dim1=-2, dim2=-1), weights)
    growths = torch.linalg.eigvals(torch.eye(dim) + steps[:, None, None, None] * own).abs().amax(-1)
    assert bool(found.converged.all())
    expected = (growths[:, 1:].amax(-1) / growths[:, 0]).log()
    torch.testing.assert_close(found.exponent, expected, atol=1e-4, rtol=1e-4)
