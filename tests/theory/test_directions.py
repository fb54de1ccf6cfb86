"""A step by eigen-directions is the step itself where theory says so, and the mean path leaves deviations alone."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.theory import deviations_kept, mean_field, uniform

from unsmooth.theory.directions import Directions
from unsmooth.theory.folding import fold, values_of
from unsmooth.theory.matrices import HeadMatrices
from unsmooth.theory.mixing import mixing_of
from unsmooth.theory.stochastic import attention_entropy


def log_ratio(x: torch.Tensor) -> float:
    mean = x.mean(-2, keepdim=True)
    return float((x - mean).norm().log() - mean.expand_as(x).norm().log())


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.floats(-0.5, 1.0), st.floats(0.1, 3.0))
def test_the_gain_is_the_step_of_a_symmetric_layer_that_scales_deviations(seed: int, kept: float, step: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    x, w = (torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((1, 7, 5), (5, 5)))
    w = (w + w.mT) / 2
    n = x.shape[1]
    a = kept * torch.eye(n, dtype=torch.float64) + (1 - kept) / n
    after = x + step * a @ x @ w
    mean = x.mean(1)
    one = torch.ones(1, dtype=torch.float64)
    found = Directions.of(*torch.linalg.eig(w.mT)).gain(x - mean[:, None], mean, step * one, kept * one)
    assert float(found) == pytest.approx(log_ratio(after) - log_ratio(x), abs=1e-8)


def test_a_mean_field_keeps_what_its_attention_keeps_and_uniform_attention_keeps_nothing() -> None:
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(2, 3, 6, 6, generator=generator, dtype=torch.float64).softmax(-1)
    z = torch.randn(2, 6, 4, generator=generator, dtype=torch.float64)
    mask = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    a = torch.where(mask[:, None, None], a, 0)
    a = a / a.sum(-1, keepdim=True)
    alpha = deviations_kept(torch.where(mask[:, None, :, None], a, 0), z, mask)
    field = mean_field(torch.where(mask[:, None, :, None], a, 0), alpha, mask)
    torch.testing.assert_close(deviations_kept(field, z, mask), alpha)
    flat = uniform(a, mask)
    torch.testing.assert_close(deviations_kept(flat, z, mask), torch.zeros_like(alpha), atol=1e-12, rtol=0)
    torch.testing.assert_close(flat.sum(-1)[1, :, :4], torch.ones(3, 4, dtype=torch.float64))
    assert not bool(flat[1, :, :, 4:].any())


@pytest.mark.parametrize("padding", [False, True])
def test_the_mean_field_and_the_mean_path_need_no_matrix(padding: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    w_v, w_proj, x = (
        torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((3, 4, 2), (3, 2, 4), (2, 6, 4))
    )
    a = torch.randn(2, 3, 6, 6, generator=generator, dtype=torch.float64).softmax(-1)
    mask = torch.tensor([[True] * 6, [True] * 4 + [False] * 2]) if padding else None
    if mask is not None:
        a = torch.where(mask[:, None, None] & mask[:, None, :, None], a, 0)
        a, x = a / torch.where(a.sum(-1, keepdim=True) > 0, a.sum(-1, keepdim=True), 1), x * mask[..., None]
    folded = fold(w_v, w_proj)
    found = mixing_of(HeadMatrices.of(a), x, torch.ones(2, 6, dtype=torch.float64), folded, mask)
    alpha = deviations_kept(a, x, mask)
    torch.testing.assert_close(found.alpha, alpha)
    torch.testing.assert_close(found.mixed, a @ values_of(x, folded))
    torch.testing.assert_close(found.mean_field, mean_field(a, alpha, mask) @ values_of(x, folded))
    torch.testing.assert_close(found.mean_path, uniform(a, mask) @ values_of(x, folded))
    torch.testing.assert_close(found.entropy, attention_entropy(a, None if mask is None else mask[:, None]))
    assert found.own is None
