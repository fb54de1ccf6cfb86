from __future__ import annotations

import pytest
import torch
from reference.theory import update_matrix
from theory.matrices import make_a, make_h

from unsmooth.errors import FeatureError, OptionError, WeightsError
from unsmooth.metrics import cosine_similarity, hfc_lfc_ratio
from unsmooth.theory import simulate
from unsmooth.theory.scenario import Scenario, curve, random_h, scenarios


@pytest.fixture
def problem() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    return torch.randn(6, 4, generator=g, dtype=torch.float64), make_a("softmax", 6, g), make_h("general", 4, g)


def test_simulation_is_the_dense_power(problem: tuple[torch.Tensor, ...]) -> None:
    x, a, h = problem
    for residual in (True, False):
        run = simulate(x, a, h.mT, layers=7, residual=residual)
        stacked = torch.linalg.matrix_power(update_matrix(h, a, residual), 7) @ x.T.reshape(-1)
        expected = stacked.reshape(4, 6).T
        torch.testing.assert_close(run.x * run.log_scale[-1].exp(), expected)
        assert float(run.hfc_lfc[-1]) == pytest.approx(float(hfc_lfc_ratio(expected)))


def test_thousands_of_layers_do_not_overflow(problem: tuple[torch.Tensor, ...]) -> None:
    x, a, h = problem
    run = simulate(x, a, 5 * h.mT, layers=3000)
    assert bool(torch.isfinite(run.x).all())
    assert float(run.log_scale[-1]) > 710  # more than a float64 could hold


def test_heads_add_up_however_they_are_given(problem: tuple[torch.Tensor, ...]) -> None:
    x, _, _ = problem
    attention = torch.softmax(torch.randn(3, 6, 6, dtype=torch.float64), -1)
    w_v, w_proj = torch.randn(3, 4, 2, dtype=torch.float64), torch.randn(3, 2, 4, dtype=torch.float64)
    factored = simulate(x, attention, (w_v, w_proj), layers=1)
    dense = simulate(x, attention, w_v @ w_proj, layers=1)
    expected = x + sum(attention[i] @ x @ w_v[i] @ w_proj[i] for i in range(3))
    torch.testing.assert_close(factored.x * factored.log_scale[-1].exp(), expected)
    torch.testing.assert_close(dense.x, factored.x)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_normalised_updates_match_their_formula(problem: tuple[torch.Tensor, ...], norm: str) -> None:
    x, a, h = problem
    weight, bias = torch.rand(4, dtype=torch.float64), torch.rand(4, dtype=torch.float64)
    ln = torch.nn.LayerNorm(4, dtype=torch.float64)
    ln.weight.data, ln.bias.data = weight, bias
    expected = x + a @ ln(x) @ h.mT if norm == "pre" else ln(x + a @ x @ h.mT)
    run = simulate(x, a, h.mT, 1, norm, norm_weight=weight, norm_bias=bias)  # type: ignore[arg-type]
    torch.testing.assert_close(run.x, expected.detach())


def test_feed_forward_and_recomputed_attention(problem: tuple[torch.Tensor, ...]) -> None:
    x, _, h = problem

    def attention(state: torch.Tensor) -> torch.Tensor:
        return torch.softmax(state @ state.mT, -1)

    run = simulate(x, attention, h.mT, layers=1, feed_forward=torch.tanh)
    middle = x + attention(x) @ x @ h.mT
    torch.testing.assert_close(run.x, middle + torch.tanh(middle))


def test_batches_of_starts_are_simulated_together(problem: tuple[torch.Tensor, ...]) -> None:
    x, a, h = problem
    both = simulate(torch.stack([x, x.flip(0)]), a, h.mT, layers=9)
    torch.testing.assert_close(both.hfc_lfc[1], simulate(x.flip(0), a, h.mT, layers=9).hfc_lfc)


def test_bad_arguments_are_refused(problem: tuple[torch.Tensor, ...]) -> None:
    x, a, h = problem
    with pytest.raises(OptionError, match="unknown norm 'mid'"):
        simulate(x, a, h, norm="mid")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="layers must be at least 1"):
        simulate(x, a, h, layers=0)
    with pytest.raises(WeightsError, match=r"w must be \(dim, dim\)"):
        simulate(x, a, h[0])
    with pytest.raises(FeatureError, match="not finite after layer"):
        simulate(x, a, h.mT, layers=400, feed_forward=lambda state: 100 * state)
    with pytest.raises(OptionError, match="unknown mode"):
        random_h(4, "general", "blurring", torch.Generator())  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="unknown form"):
        random_h(4, "skew", "smoothing", torch.Generator())  # type: ignore[arg-type]


def test_random_h_has_the_spectrum_it_promises() -> None:
    for form in ("symmetric", "general"):
        h = random_h(8, form, "sharpening", torch.Generator().manual_seed(1))  # type: ignore[arg-type]
        values = torch.linalg.eigvals(h)
        assert float(values.imag.abs().max()) < 1e-9
        assert -1 <= float(values.real.min()) < float(values.real.max()) <= 0
        assert bool(torch.allclose(h, h.mT)) == (form == "symmetric")


def test_there_are_twenty_cells() -> None:
    assert len(scenarios()) == len({s.label for s in scenarios()}) == 20


def test_negating_h_and_the_pre_norm_weights_together_changes_nothing() -> None:
    # why two pairs of cells of section 5's table must be equal, whatever the form
    for form in ("symmetric", "general"):
        one = curve(Scenario(form, "pre", "sharpening", -1), seed=3, layers=20)  # type: ignore[arg-type]
        other = curve(Scenario(form, "pre", "smoothing", 1), seed=3, layers=20)  # type: ignore[arg-type]
        torch.testing.assert_close(one, other)


def test_the_sign_of_post_norm_weights_changes_nothing() -> None:
    plus = curve(Scenario("general", "post", "sharpening", 1), seed=3, layers=20)
    minus = curve(Scenario("general", "post", "sharpening", -1), seed=3, layers=20)
    torch.testing.assert_close(plus, minus)


def test_every_layer_is_written_down(problem: tuple[torch.Tensor, ...]) -> None:
    x, a, h = problem
    x = 1e-3 * x
    run, state = simulate(x, a, h.mT, layers=4), x
    for layer in range(5):
        assert float(run.hfc_lfc[layer]) == pytest.approx(float(hfc_lfc_ratio(state)))
        assert float(run.cosine[layer]) == pytest.approx(float(cosine_similarity(state)))
        scale = float(state.norm().log()) if layer else 0.0  # the start is as it was given
        assert float(run.log_scale[layer]) == pytest.approx(scale, abs=1e-9)
        state = state + a @ state @ h.mT
    assert run.hfc_lfc.shape == run.cosine.shape == run.log_scale.shape == (5,)


def test_the_verdict_compares_the_end_with_the_start() -> None:
    x, a = torch.randn(5, 4).double(), torch.softmax(torch.randn(5, 5), -1).double()
    for sign, verdict in ((0.5, "smoothing"), (-0.5, "sharpening")):
        assert simulate(x, a, sign * torch.eye(4).double(), layers=20).verdict == verdict
