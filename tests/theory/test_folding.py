from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from unsmooth.analysis.layer_weights import cast_weights, fold_weights
from unsmooth.errors import WeightsError
from unsmooth.models import HeadWeights, Norm
from unsmooth.theory.folding import Folded, frozen_step, output_statistics, statistics, step_size, values_of
from unsmooth.theory.normality import condition_number, departure_from_normality, eigenbasis, head_conditions

DIM, HEADS, KEY, TOKENS = 6, 2, 3, 5


def random_norm(kind: str, bias: bool) -> Norm:
    weight = torch.randn(DIM, dtype=torch.float64)
    return Norm(kind, weight, torch.randn(DIM, dtype=torch.float64) if bias else None, 1e-6)  # type: ignore[arg-type]


def random_weights(**extra: object) -> HeadWeights:
    w_v = torch.randn(HEADS, DIM, KEY, dtype=torch.float64)
    w_proj = torch.randn(HEADS, KEY, DIM, dtype=torch.float64)
    b_v, b_proj = torch.randn(HEADS, KEY, dtype=torch.float64), torch.randn(DIM, dtype=torch.float64)
    return HeadWeights(w_v, w_proj, b_v, b_proj, **extra)  # type: ignore[arg-type]


def mixed(x: torch.Tensor, a: torch.Tensor, folded: Folded, d: torch.Tensor) -> torch.Tensor:
    return a @ values_of(x * d[..., None], folded)


def sublayer(x: torch.Tensor, a: torch.Tensor, w: HeadWeights) -> torch.Tensor:
    """The sub-layer as its module computes it, norm by norm."""
    inside = x if w.norm is None else w.norm(x)
    assert w.b_v is not None
    assert w.b_proj is not None
    added = sum(a[:, h] @ (inside @ w.w_v[h] + w.b_v[h]) @ w.w_proj[h] for h in range(HEADS)) + w.b_proj
    added = added if w.out_norm is None else w.out_norm(added)
    total = x + (added if w.out_scale is None else added * w.out_scale)
    return total if w.post_norm is None else w.post_norm(total)


@pytest.mark.parametrize("kind", ["layer", "rms"])
@pytest.mark.parametrize("out", [None, "layer", "rms"])
def test_the_folded_map_with_its_own_statistics_is_the_sublayer(kind: str, out: str | None) -> None:
    w = random_weights(
        norm=random_norm(kind, bias=True),
        out_norm=None if out is None else random_norm(out, bias=True),
        out_scale=torch.randn(DIM, dtype=torch.float64),
    )
    x = torch.randn(2, TOKENS, DIM, dtype=torch.float64)
    a = torch.softmax(torch.randn(2, HEADS, TOKENS, TOKENS, dtype=torch.float64), -1)
    folded = fold_weights(w)
    d = statistics(w.norm, x)
    inner = mixed(x, a, folded, d)
    d_out = output_statistics(inner, folded)
    torch.testing.assert_close(frozen_step(x, inner, folded, d_out), sublayer(x, a, w))
    assert (d_out is None) == (out is None)
    said = " ".join(folded.approximations)
    assert "statistics D" in said
    assert ("output norm" in said) == (out is not None)
    assert "γ leaves out what every token gets (norm bias, b_v, b_proj)" in said


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_a_norm_after_the_sum_is_folded_and_what_is_left_is_named(kind: str) -> None:
    w = random_weights(post_norm=random_norm(kind, bias=True))
    x = torch.randn(2, TOKENS, DIM, dtype=torch.float64)
    a = torch.softmax(torch.randn(2, HEADS, TOKENS, TOKENS, dtype=torch.float64), -1)
    folded = fold_weights(w)
    d = statistics(w.norm, x)
    d_post = statistics(w.post_norm, sublayer(x, a, replace(w, post_norm=None)))
    inner = mixed(x, a, folded, d)
    torch.testing.assert_close(frozen_step(x, inner, folded, None, d_post), sublayer(x, a, w))
    torch.testing.assert_close(frozen_step(x, inner, folded), sublayer(x, a, w))  # its own statistics by default
    assert "of the norm after the sum, centring and weight are folded into γ" in folded.approximations[0]


def test_norms_on_both_sides_of_the_sum_are_refused() -> None:
    with pytest.raises(WeightsError, match="at most one of norm and post_norm"):
        fold_weights(random_weights(norm=random_norm("rms", False), post_norm=random_norm("rms", False)))


def test_a_constant_reaches_hfc_only_through_an_output_norm() -> None:
    x = torch.randn(1, TOKENS, DIM, dtype=torch.float64)
    a = torch.softmax(torch.randn(1, HEADS, TOKENS, TOKENS, dtype=torch.float64), -1)
    for out in (None, random_norm("rms", bias=True)):
        folded = fold_weights(random_weights(out_norm=out))
        inner = mixed(x, a, folded, statistics(None, x))
        d_out = output_statistics(inner, folded)
        moved = frozen_step(x, inner, folded, d_out) - frozen_step(x, inner, folded, d_out, constant=False)
        assert (float((moved - moved.mean(-2, keepdim=True)).norm()) > 0.1) == (out is not None)


def test_a_layer_without_norms_is_folded_exactly_with_step_one() -> None:
    w = random_weights()
    folded = fold_weights(HeadWeights(w.w_v, w.w_proj, None, None))
    x = torch.randn(2, TOKENS, DIM, dtype=torch.float64)
    assert folded.approximations == ()
    assert not folded.has_constant
    assert step_size(statistics(folded.norm, x), None, None).tolist() == [1.0, 1.0]


def test_a_constant_negative_norm_weight_flips_every_eigenvalue() -> None:
    positive = random_weights(norm=Norm("rms", torch.full((DIM,), 2.0, dtype=torch.float64), None, 1e-6))
    negative = HeadWeights(positive.w_v, positive.w_proj, None, None, Norm("rms", -positive.norm.weight, None, 1e-6))  # type: ignore[union-attr, operator]
    one, other = ((f.w_v @ f.w_proj).sum(0) for f in (fold_weights(positive), fold_weights(negative)))
    torch.testing.assert_close(
        torch.linalg.eigvals(one).real.sort().values, (-torch.linalg.eigvals(other).real).sort().values
    )


def test_the_step_ignores_padding() -> None:
    d = torch.tensor([[1.0, 3.0, torch.nan]])
    assert step_size(d, None, torch.tensor([[True, True, False]])).tolist() == [2.0]


def test_bfloat16_weights_are_folded_in_the_dtype_asked_for() -> None:
    w = HeadWeights(torch.randn(HEADS, DIM, KEY).bfloat16(), torch.randn(HEADS, KEY, DIM).bfloat16(), None, None)
    assert fold_weights(cast_weights(w)).w_v.dtype == torch.float32


def test_departure_and_condition_match_the_dense_matrix() -> None:
    w = random_weights()
    for head, (found, condition) in enumerate(
        zip(departure_from_normality(w.w_v, w.w_proj), head_conditions(w.w_v, w.w_proj), strict=True)
    ):
        h = (w.w_v[head] @ w.w_proj[head]).T
        values, vectors = torch.linalg.eig(h)
        expected = ((h.square().sum() - values.abs().square().sum()) / h.square().sum()).sqrt()
        assert float(found) == pytest.approx(float(expected))
        sigma = torch.linalg.svdvals(vectors[:, values.abs() > 1e-9])
        assert condition == pytest.approx(float(sigma[0] / sigma[-1]), rel=1e-6)


def test_a_turn_of_all_features_keeps_the_condition_of_an_h_with_many_zeros() -> None:
    torch.manual_seed(0)
    h = torch.randn(40, 6, dtype=torch.float64) @ torch.randn(6, 40, dtype=torch.float64)
    q = torch.linalg.qr(torch.randn(40, 40, dtype=torch.float64)).Q
    found = [condition_number(eigenbasis(each, *torch.linalg.eig(each))[1]) for each in (h, q @ h @ q.mT)]
    assert found[0] == pytest.approx(found[1], rel=1e-9)
    values, vectors = torch.linalg.eig(h[:6, :6])
    sigma = torch.linalg.svdvals(vectors)
    assert condition_number(eigenbasis(h[:6, :6], values, vectors)[1]) == pytest.approx(float(sigma[0] / sigma[-1]))


def test_a_normal_h_has_no_departure() -> None:
    q = torch.linalg.qr(torch.randn(DIM, DIM, dtype=torch.float64)).Q
    assert float(departure_from_normality(q[None] * 0.5, q.mT[None])) < 1e-7
