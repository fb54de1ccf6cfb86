"""Every metric against its slow twin, at the edges too; masks and gradients."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import metrics as reference
from torch import Tensor

from unsmooth.metrics import definitions as metrics
from unsmooth.metrics import values
from unsmooth.metrics.tolerance import tolerance

TWINS: dict[str, tuple[Callable[..., Tensor], Callable[[Tensor], Tensor]]] = {
    "hfc_lfc": (metrics.hfc_lfc_ratio, reference.high_low_ratio),
    "hfc_lfc_spectral": (
        lambda x, mask=None: metrics.hfc_lfc_ratio(x, "spectral", mask),
        lambda x: reference.high_low_ratio(x, "spectral"),
    ),
    "cosine_similarity": (metrics.cosine_similarity, reference.mean_cosine),
    "effective_rank": (metrics.effective_rank, reference.entropy_rank),
    "rankme": (metrics.rankme, lambda x: reference.entropy_rank(x, 1e-7)),
    "stable_rank": (metrics.stable_rank, lambda x: (x.norm() / torch.linalg.matrix_norm(x, 2)).square()),
    "participation_ratio": (
        metrics.participation_ratio,
        lambda x: torch.linalg.svdvals(x).square().sum().square() / torch.linalg.svdvals(x).pow(4).sum(),
    ),
    "dirichlet": (metrics.dirichlet, reference.pairwise_energy),
    "dong2021": (
        metrics.dong2021,
        lambda x: reference.composite_norm(x - x.mean(0)) / reference.composite_norm(x),
    ),
    "vita2022": (metrics.vita2022, lambda x: reference.pairwise_cosines(x).abs().mean()),
}
PROMISED = 1e-4  # relative error from float32 inputs, down to HFC/LFC = 1e-6

each_metric = pytest.mark.parametrize("name", TWINS)


def error(name: str, x: Tensor, mask: Tensor | None = None) -> float:
    """The largest relative error over the samples of a batch."""
    fast, slow = TWINS[name]
    truth = torch.stack([slow(reference.kept_tokens(x[i], None if mask is None else mask[i])) for i in range(len(x))])
    return float(((fast(x, mask=mask) - truth) / truth).abs().max())


@each_metric
@pytest.mark.parametrize("shape", [(3, 12, 30), (3, 30, 12), (2, 16, 16), (2, 2, 5), (2, 5, 1)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_random_features_agree_with_the_twin(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    assert error(name, (torch.randn(shape) + 0.3).to(dtype)) < 1e-7


@each_metric
@pytest.mark.parametrize("collapse", [1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("shape", [(2, 50, 120), (2, 120, 50)])
def test_near_collapse_in_float32_the_promise_holds(name: str, collapse: float, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape[0], 1, shape[2]).abs() + collapse * torch.randn(shape)
    assert error(name, x) < PROMISED


@pytest.mark.parametrize("collapse", [1e-3, 1e-6, 1e-7])
@pytest.mark.parametrize("name", ["effective_rank", "rankme", "hfc_lfc"])
def test_the_promise_holds_for_many_tokens(name: str, collapse: float) -> None:
    x = torch.randn(1, 1, 600) + collapse * torch.randn(1, 500, 600)
    assert error(name, x) < PROMISED


@pytest.mark.parametrize("shape", [(40, 90), (90, 40), (1, 7), (600, 700)])
def test_rank_one_features_have_effective_rank_one(shape: tuple[int, int]) -> None:
    x = torch.randn(shape[0], 1).double() @ torch.randn(1, shape[1]).double()
    assert float(metrics.effective_rank(x)) == pytest.approx(1, abs=1e-6)
    assert float(metrics.stable_rank(x)) == pytest.approx(1, abs=1e-6)


def test_rank_one_features_with_a_zero_mean_have_effective_rank_one() -> None:
    signs = torch.tensor([1.0, -1.0]).repeat(200)
    assert float(metrics.effective_rank(signs[:, None] * torch.randn(1, 500))) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("shape", [(30, 50), (50, 30)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_equal_tokens_are_fully_smooth(shape: tuple[int, int], dtype: torch.dtype) -> None:
    x = torch.randn(1, shape[1]).to(dtype).expand(shape)
    rounding = tolerance(torch.float64, shape[0])
    assert float(metrics.hfc_lfc_ratio(x)) <= rounding
    assert float(metrics.hfc_lfc_ratio(x, "spectral")) <= rounding
    assert float(metrics.cosine_similarity(x)) == pytest.approx(1, abs=rounding)
    assert float(metrics.effective_rank(x)) == pytest.approx(1, abs=1e-6)
    assert float(metrics.dirichlet(x)) <= rounding


@each_metric
@pytest.mark.parametrize("shape", [(2, 9, 14), (2, 14, 9)])
def test_a_zero_token_counts_and_has_cosine_zero(name: str, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    x[:, 3] = 0
    assert error(name, x) < 1e-7


def test_a_zero_mean_makes_the_ratio_infinite() -> None:
    half = torch.randn(4, 6)
    x = torch.cat([half, -half])
    assert float(metrics.hfc_lfc_ratio(x)) == math.inf
    assert float(metrics.hfc_lfc_ratio(x, "spectral")) == math.inf


def test_features_of_zeros_make_ratios_and_ranks_nan_and_cosines_zero() -> None:
    x = torch.zeros(5, 4)
    for name in ("hfc_lfc", "hfc_lfc_spectral", "effective_rank", "rankme", "stable_rank", "participation_ratio"):
        assert math.isnan(float(TWINS[name][0](x))), name
    assert math.isnan(float(metrics.dong2021(x)))
    assert float(metrics.cosine_similarity(x)) == float(metrics.vita2022(x)) == float(metrics.dirichlet(x)) == 0


@each_metric
def test_nan_in_a_kept_token_gives_nan_for_that_sample_only(name: str) -> None:
    x = torch.randn(3, 6, 8)
    x[1, 2, 3] = math.nan
    assert TWINS[name][0](x).isnan().tolist() == [False, True, False]


@each_metric
@pytest.mark.parametrize("junk", [math.nan, math.inf, 1e30, 0.0])
@pytest.mark.parametrize("shape", [(4, 12, 30), (4, 30, 12), (4, 14, 10)])
def test_masked_tokens_change_nothing_whatever_they_hold(name: str, junk: float, shape: tuple[int, ...]) -> None:
    x, mask = torch.randn(shape) + 0.3, torch.rand(shape[:-1]) < 0.6
    mask[:, :2] = True
    x[~mask] = junk
    assert error(name, x, mask) < 1e-7


@each_metric
def test_one_mask_can_serve_a_whole_batch(name: str) -> None:
    x, mask = torch.randn(3, 7, 9), torch.tensor([True, False, True, True, False, True, True])
    torch.testing.assert_close(TWINS[name][0](x, mask=mask), TWINS[name][0](x[:, mask]))


@each_metric
def test_gradients_are_right_with_and_without_a_mask(name: str) -> None:
    fast = TWINS[name][0]
    for shape in ((2, 5, 7), (2, 7, 5)):
        x = (torch.randn(shape, dtype=torch.float64) + 0.5).requires_grad_()
        mask = torch.rand(shape[:-1]) < 0.7
        mask[:, :2] = True
        assert torch.autograd.gradcheck(lambda y: fast(y), x)
        assert torch.autograd.gradcheck(lambda y, m=mask: fast(y, mask=m), x)


@each_metric
def test_a_masked_token_has_gradient_zero_even_if_it_holds_nan(name: str) -> None:
    x = torch.randn(6, 9)
    x[4] = math.nan
    x.requires_grad_()
    mask = torch.arange(6) != 4
    (gradient,) = torch.autograd.grad(TWINS[name][0](x, mask=mask), x)
    assert gradient.isfinite().all()
    assert (gradient[4] == 0).all()


@each_metric
@pytest.mark.parametrize("kind", ["equal", "zero token", "rank two"])
def test_gradients_stay_finite_at_rank_deficient_features(name: str, kind: str) -> None:
    x = {
        "equal": torch.randn(1, 8).expand(6, 8).clone(),
        "zero token": torch.cat([torch.randn(5, 8), torch.zeros(1, 8)]),
        "rank two": torch.randn(6, 2) @ torch.randn(2, 8),
    }[kind].requires_grad_()
    (gradient,) = torch.autograd.grad(TWINS[name][0](x), x)
    assert gradient.isfinite().all()


def test_the_gradient_near_collapse_is_that_of_the_svd() -> None:
    x = torch.randn(1, 30, dtype=torch.float64) + 1e-5 * torch.randn(20, 30, dtype=torch.float64)
    one, two = x.clone().requires_grad_(), x.clone().requires_grad_()
    metrics.effective_rank(one).backward()
    p = torch.linalg.svdvals(two)
    torch.special.entr(p / p.sum()).sum().exp().backward()
    assert one.grad is not None
    torch.testing.assert_close(one.grad, two.grad, rtol=1e-4, atol=1e-6)


@settings(deadline=None, max_examples=25)
@given(
    tokens=st.integers(2, 20),
    dim=st.integers(1, 20),
    scale=st.floats(1e-3, 1e3),
    seed=st.integers(0, 2**31),
)
def test_scaling_and_rotations_change_no_rank_and_no_ratio(tokens: int, dim: int, scale: float, seed: int) -> None:
    make = torch.Generator().manual_seed(seed)
    x = torch.randn(tokens, dim, generator=make, dtype=torch.float64)
    turn = torch.linalg.qr(torch.randn(dim, dim, generator=make, dtype=torch.float64)).Q
    for fast in (metrics.effective_rank, metrics.hfc_lfc_ratio, metrics.cosine_similarity):
        torch.testing.assert_close(fast(scale * x @ turn), fast(x), rtol=1e-7, atol=1e-9)
    mixed = torch.linalg.qr(torch.randn(tokens, tokens, generator=make, dtype=torch.float64)).Q @ x
    rank = float(metrics.effective_rank(x))
    assert float(metrics.effective_rank(mixed)) == pytest.approx(rank, rel=1e-7)
    assert 1 - 1e-9 <= rank <= min(tokens, dim) + 1e-9


@settings(deadline=None, max_examples=25)
@given(tokens=st.integers(2, 30), dim=st.integers(1, 30), seed=st.integers(0, 2**31))
def test_on_unit_tokens_cosine_follows_from_the_ratio(tokens: int, dim: int, seed: int) -> None:
    x = torch.randn(tokens, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.1
    x = x / x.norm(dim=1, keepdim=True)
    ratio, cosine = metrics.hfc_lfc_ratio(x), metrics.cosine_similarity(x)
    expected = (tokens / (1 + ratio.square()) - 1) / (tokens - 1)  # docs/theory.md §6
    torch.testing.assert_close(cosine, expected, rtol=1e-9, atol=1e-9)


def test_values_are_float64_and_keep_the_batch_shape() -> None:
    value = metrics.effective_rank(torch.randn(2, 3, 5, 4, dtype=torch.bfloat16))
    assert value.dtype == torch.float64
    assert value.shape == (2, 3)


def test_many_pairs_are_summed_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(2, 11, 5)
    whole = metrics.vita2022(x)
    monkeypatch.setattr(values, "PAIR_CHUNK", 50)
    torch.testing.assert_close(metrics.vita2022(x), whole)
