from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.theory import dense_layer_growth
from theory.matrices import A_KINDS, H_KINDS, causal_layer, make_a, make_h, random_layer

from unsmooth.errors import FeatureError, OptionError, WeightsError
from unsmooth.models.weights import Norm
from unsmooth.theory import dominance, layer_exponent, simulate
from unsmooth.theory.exponent import both_exponents
from unsmooth.theory.folding import linear_part
from unsmooth.theory.high_frequency import SeenLayer
from unsmooth.theory.matrices import HeadMatrices
from unsmooth.theory.operator import own_attention


@pytest.mark.parametrize("scale", [0.1, 1.0, 3.0])
@pytest.mark.parametrize(("heads", "n", "dim", "key"), [(2, 5, 4, 2), (3, 12, 10, 3), (3, 14, 12, 4), (2, 10, 6, 8)])
def test_growth_equals_the_dense_reference(heads: int, n: int, dim: int, key: int, scale: float) -> None:
    attention, w_v, w_proj = random_layer(3, heads, n, dim, key)
    weights = w_v @ w_proj
    for given_as in (weights, (w_v, w_proj)):
        found = layer_exponent(attention, given_as, scale=scale)
        assert bool(found.converged.all())
        for i in range(3):
            low, high = dense_layer_growth(attention[i], weights, scale)
            assert float(found.rho_lfc[i]) == pytest.approx(low, abs=1e-6)
            assert float(found.rho_hfc[i]) == pytest.approx(high, abs=1e-6)
            assert float(found.exponent[i]) == pytest.approx(math.log(high / low), abs=1e-6)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(H_KINDS), st.sampled_from(A_KINDS))
def test_one_head_agrees_with_dominance(seed: int, h_kind: str, a_kind: str) -> None:
    g = torch.Generator().manual_seed(seed)
    h, a = make_h(h_kind, 4, g), make_a(a_kind, 6, g)
    found, single = layer_exponent(a[None], h.mT[None]), dominance(a, h.mT)
    # The layer's map has the product of the conditions; a defective one is known to the root of its backward error.
    rough = single.h.condition * single.a.condition > 300
    assert float(found.rho_hfc) == pytest.approx(single.rho_hfc, abs=1e-3 if rough else 1e-6)
    assert float(found.rho_lfc) == pytest.approx(single.rho_lfc, abs=1e-3 if rough else 1e-6)


@pytest.mark.parametrize("seed", range(8))
def test_the_sign_of_gamma_is_what_a_three_head_simulation_shows(seed: int) -> None:
    torch.manual_seed(seed)
    attention, w_v, w_proj = random_layer(1, 3, 8, 6, 2)
    found = layer_exponent(attention[0], (w_v, w_proj))
    run = simulate(torch.randn(8, 6, dtype=torch.float64), attention[0], (w_v, w_proj), layers=800)
    assert abs(float(found.exponent)) > 0.012
    assert (float(run.hfc_lfc[-1]) < 1e-3) == (float(found.exponent) < 0)


def test_rate_of_collapse_is_gamma() -> None:
    g = torch.Generator().manual_seed(5)
    a, h = make_a("softmax", 8, g), make_h("smoothing", 4, g)
    x = torch.randn(8, 4, generator=g, dtype=torch.float64)
    ratio = simulate(x, a, h.mT, layers=60).hfc_lfc.log()
    gamma = float(layer_exponent(a[None], h.mT[None]).exponent)
    assert float(ratio[50] - ratio[40]) / 10 == pytest.approx(gamma, rel=0.05)


@pytest.mark.parametrize("which", ["modulus", "rightmost"])
def test_causal_growth_is_that_of_the_tokens_own_blocks(which: str) -> None:
    # each token looks at itself and the one before: so non-normal that residuals are small far from any eigenvalue
    torch.manual_seed(0)
    weights = torch.randn(2, 12, 12, dtype=torch.float64) / 12**0.5
    own = torch.tensor([0.3, 0.5], dtype=torch.float64)[:, None].expand(2, 39)
    attention = torch.diag_embed(torch.cat([torch.ones_like(own[:, :1]), own], -1)) + torch.diag_embed(1 - own, -1)
    found = layer_exponent(attention.float(), weights.float(), which=which, accuracy=0.01)
    values = torch.linalg.eigvals(0.3 * weights[0] + 0.5 * weights[1])
    exact = (1 + values).abs().max() if which == "modulus" else values.real.max()
    assert bool(found.converged)
    assert float(found.rho_hfc) == pytest.approx(float(exact), rel=0.01)


def test_causal_growth_equals_the_dense_reference() -> None:
    torch.manual_seed(1)
    attention, weights = causal_layer(2, 3, 5, 6)
    found = layer_exponent(attention, weights)
    for i in range(2):
        low, high = dense_layer_growth(attention[i], weights)
        assert float(found.rho_lfc[i]) == pytest.approx(low, abs=1e-6)
        assert float(found.rho_hfc[i]) == pytest.approx(high, abs=1e-6)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_of_causal_inputs_changes_nothing(side: str) -> None:
    attention, weights = causal_layer(2, 2, 7, 6)
    kept = slice(3, 10) if side == "left" else slice(0, 7)
    padded = torch.eye(10, dtype=torch.float64).expand(2, 2, 10, 10).clone()
    padded[..., kept, kept] = attention
    mask = torch.zeros(2, 10, dtype=torch.bool)
    mask[:, kept] = True
    plain, masked = layer_exponent(attention, weights), layer_exponent(padded, weights, mask=mask)
    torch.testing.assert_close(plain.rho_hfc, masked.rho_hfc, atol=1e-6, rtol=0)


def test_causal_tokens_that_never_look_at_themselves_do_not_grow() -> None:
    attention = torch.zeros(1, 2, 4, 4)
    attention[..., 0] = 1
    found = layer_exponent(attention, torch.randn(2, 3, 3))
    assert found.rho_hfc.tolist() == [1.0]
    assert bool(found.converged.all())


def test_masked_tokens_change_nothing() -> None:
    attention, w_v, w_proj = random_layer(2, 2, 7, 6, 3)
    padded = torch.zeros(2, 2, 10, 10, dtype=torch.float64)
    padded[..., :7, :7] = attention
    padded[..., 7:, :7] = 1 / 7  # what a padded query does
    mask = torch.arange(10).expand(2, -1) < 7
    plain, masked = layer_exponent(attention, (w_v, w_proj)), layer_exponent(padded, (w_v, w_proj), mask=mask)
    torch.testing.assert_close(plain.rho_hfc, masked.rho_hfc, atol=1e-7, rtol=0)


def test_batches_equal_single_inputs_and_keep_their_shape() -> None:
    attention, w_v, w_proj = random_layer(6, 2, 9, 6, 3)
    together = layer_exponent(attention.view(2, 3, 2, 9, 9), (w_v, w_proj))
    assert together.exponent.shape == (2, 3)
    alone = layer_exponent(attention[4], (w_v, w_proj))
    assert float(together.exponent[1, 1]) == pytest.approx(float(alone.exponent), abs=1e-7)


def test_rightmost_is_the_small_step_exponent() -> None:
    attention, w_v, w_proj = random_layer(1, 2, 9, 6, 3)
    slow = layer_exponent(attention, (w_v, w_proj), which="rightmost")
    tiny = layer_exponent(attention, (w_v, w_proj), scale=1e-5)
    assert float(slow.exponent) == pytest.approx(float(tiny.exponent) / 1e-5, abs=1e-3)


def test_null_space_of_few_heads_is_counted() -> None:
    mixing = torch.softmax(torch.randn(6, 6, dtype=torch.float64), -1)
    attention = (0.9 * torch.eye(6, dtype=torch.float64) + 0.1 * mixing)[None, None]  # no eigenvalue flips the sign
    w_v = torch.tensor([[[1.0], [0.0]]], dtype=torch.float64)
    found = layer_exponent(attention, (w_v, -0.5 * w_v.mT))
    assert float(found.rho_lfc) == float(found.rho_hfc) == 1.0  # the second feature never moves


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_growth_with_a_norm_after_the_sum_equals_the_dense_reference(dtype: torch.dtype) -> None:
    """Weights so small that the map is nearly that norm: a long search, in which a mean left by rounding would grow."""
    g = torch.Generator().manual_seed(0)
    for _ in range(10):
        attention = (0.5 * torch.randn(4, 2, 8, 8, generator=g)).double().softmax(-1)
        w_v, w_proj = (0.15 * torch.randn(2, *size, generator=g).double() for size in ((20, 10), (10, 20)))
        scale = 1 + 0.15 * torch.randn(20, generator=g).double()
        norm = Norm("layer", scale.to(dtype), None, 0.0)
        found = layer_exponent(
            attention.to(dtype), (w_v.to(dtype), w_proj.to(dtype)), accuracy=0.01, after=partial(linear_part, norm)
        )
        assert bool(found.converged.all())
        after = (torch.eye(20, dtype=torch.float64) - 1 / 20) * scale
        for i, a in enumerate(attention):
            low, high = dense_layer_growth(a, w_v @ w_proj, after=after)
            assert float(found.rho_lfc[i]) == pytest.approx(low, rel=1e-5)
            assert float(found.rho_hfc[i]) == pytest.approx(high, rel=5e-3)


def test_two_tokens_are_enough() -> None:
    attention, w_v, w_proj = random_layer(1, 2, 2, 4, 2)
    low, high = dense_layer_growth(attention[0], w_v @ w_proj)
    found = layer_exponent(attention, (w_v, w_proj), mask=torch.ones(1, 2, dtype=torch.bool))
    assert [float(found.rho_lfc), float(found.rho_hfc)] == pytest.approx([low, high], abs=1e-6)


def test_float32_is_close_to_float64() -> None:
    attention, w_v, w_proj = random_layer(2, 3, 12, 9, 3)
    single = layer_exponent(attention.float(), (w_v.float(), w_proj.float()))
    double = layer_exponent(attention, (w_v, w_proj))
    torch.testing.assert_close(single.exponent, double.exponent, atol=1e-3, rtol=0)


def test_what_does_not_fit_is_refused() -> None:
    attention, w_v, w_proj = random_layer(1, 2, 5, 4, 2)
    with pytest.raises(WeightsError, match="with 3 heads as in the weights"):
        layer_exponent(attention, torch.zeros(3, 4, 4, dtype=torch.float64))
    with pytest.raises(WeightsError, match=r"weights must be \(heads, dim, dim\)"):
        layer_exponent(attention, torch.zeros(4, 4, dtype=torch.float64))
    with pytest.raises(WeightsError, match=r"w_v must be \(heads, dim, key\)"):
        layer_exponent(attention, (w_v, w_v))
    with pytest.raises(FeatureError, match="one token only"):  # of one of two inputs
        layer_exponent(attention.expand(2, 2, 5, 5), (w_v, w_proj), mask=torch.arange(5) < torch.tensor([[5], [1]]))
    with pytest.raises(OptionError, match="expected one of 'modulus', 'rightmost'"):
        layer_exponent(attention, (w_v, w_proj), which="largest")  # type: ignore[arg-type]
    with pytest.raises(WeightsError, match="rows must sum to 1"):
        layer_exponent(attention * 0.5, (w_v, w_proj))


@pytest.mark.parametrize("broken", [math.nan, math.inf])
@pytest.mark.parametrize("dim", [4, 30])
def test_weights_that_are_no_numbers_are_refused(broken: float, dim: int) -> None:
    """Small causal layers gave NaN that was called converged, and others an error of LAPACK's."""
    attention, whole = causal_layer(1, 2, 5, dim)
    whole[0, 0, 0] = broken
    for weights in (whole, (whole, torch.ones(2, dim, dim).double())):
        with pytest.raises(WeightsError, match="w holds NaN or infinity"):
            layer_exponent(attention, weights)


def test_weights_that_are_no_pair_are_refused() -> None:
    with pytest.raises(WeightsError, match=r"a pair \(w_v, w_proj\), got 0 things"):
        layer_exponent(torch.eye(3)[None], ())  # type: ignore[arg-type]


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.05, 3.0), st.booleans())
def test_one_search_finds_what_two_find(seed: int, step: float, causal: bool) -> None:
    torch.manual_seed(seed)
    attention, w_v, w_proj = random_layer(2, 3, 12, 10, 3)
    if causal:
        attention = attention.tril() / attention.tril().sum(-1, keepdim=True)
    steps = torch.tensor([step, 1.0], dtype=torch.float64)
    layer = SeenLayer(HeadMatrices.of(attention), own_attention(attention))
    fast, slow = both_exponents(layer, (w_v, w_proj), steps)
    for found, which in ((fast, "modulus"), (slow, "rightmost")):
        alone = layer_exponent(attention, (w_v, w_proj), scale=steps, which=which)  # type: ignore[arg-type]
        assert bool((found.converged & alone.converged).all())
        for name in ("rho_lfc", "rho_hfc", "exponent"):
            torch.testing.assert_close(getattr(found, name), getattr(alone, name), atol=1e-6, rtol=1e-6)
