"""What a constant row does to a repeated layer: the cases that γ alone gets wrong."""

from __future__ import annotations

import pytest
import torch
from theory.matrices import make_a, make_h

from unsmooth.errors import WeightsError
from unsmooth.theory import dominance, exponent_with_constant, fixed_point, simulate


def sharpening_layer() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """H in [−1, 0) and a slowly mixing A: both parts shrink, the mean token faster."""
    g = torch.Generator().manual_seed(0)
    n, d = 12, 6
    scores = torch.randn(n, n, generator=g, dtype=torch.float64)
    a = 0.5 * torch.eye(n, dtype=torch.float64) + 0.5 * (scores + scores.mT).softmax(-1)  # real eigenvalues
    q = torch.linalg.qr(torch.randn(d, d, generator=g, dtype=torch.float64)).Q
    h = q * torch.linspace(-0.8, -0.23, d, dtype=torch.float64) @ q.mT
    return torch.randn(n, d, generator=g, dtype=torch.float64), a, h


def test_a_small_bias_overturns_the_verdict_of_gamma() -> None:
    x, a, h = sharpening_layer()
    found = dominance(a, h.mT)
    assert found.kind == "sharpening"
    assert found.exponent > 0.1
    assert found.rho_hfc < 0.97
    bias = 0.01 * torch.randn(6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    without = simulate(x, a, h.mT, layers=1500)
    with_it = simulate(x, a, h.mT, layers=1500, constant=bias)
    assert float(without.hfc_lfc[-1]) == pytest.approx(found.predicted.hfc_lfc, rel=0.1)
    assert float(with_it.hfc_lfc[-1]) < 1e-12
    high, low = (torch.tensor(rho).log() for rho in (found.rho_hfc, found.rho_lfc))
    expected = float(exponent_with_constant(high, low))
    assert expected < 0
    ratio = with_it.hfc_lfc.log()
    assert float(ratio[400] - ratio[300]) / 100 == pytest.approx(expected, rel=0.05)  # its size is the rate too


@pytest.mark.parametrize("seed", range(12))
def test_the_sign_of_gamma_with_the_constant_is_what_a_simulation_with_it_shows(seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    a = make_a("softmax", 7, g)
    h = (
        make_h(("sharpening", "smoothing", "general", "symmetric")[seed % 4], 4, g)
        if seed % 4 < 2
        else (0.4 * torch.randn(4, 4, generator=g, dtype=torch.float64))
    )
    found = dominance(a, h.mT)
    constant = torch.randn(4, generator=g, dtype=torch.float64)
    logs = torch.tensor([found.rho_hfc, found.rho_lfc], dtype=torch.float64).log()
    gamma = float(exponent_with_constant(*logs))
    run = simulate(torch.randn(7, 4, generator=g, dtype=torch.float64), a, h.mT, layers=3000, constant=constant)
    assert abs(gamma) > 0.005
    assert (float(run.hfc_lfc[-1]) < 1e-4) == (gamma < 0)


def test_the_mean_token_goes_to_the_fixed_point_where_that_attracts() -> None:
    x, a, h = sharpening_layer()
    a = torch.full_like(a, 1 / len(a))  # HFC dies at once, so the mean token follows its own recurrence
    constant = torch.arange(6.0, dtype=torch.float64)
    run = simulate(x, a, h.mT, layers=400, constant=constant)
    found = fixed_point(torch.eye(6, dtype=torch.float64) + h.mT, constant)
    assert bool(found.attracts)
    assert float(found.drift.norm()) < 1e-12
    torch.testing.assert_close(run.x.mean(0) * run.log_scale[-1].exp(), found.point)


def test_a_direction_that_is_left_alone_drifts_and_has_no_fixed_point() -> None:
    g = torch.diag(torch.tensor([0.5, 1.0, 3.0], dtype=torch.float64))
    found = fixed_point(g, torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64))
    assert found.point.tolist() == pytest.approx([2.0, 0.0, -2.0])
    assert found.drift.tolist() == pytest.approx([0.0, 2.0, 0.0])
    assert not bool(found.attracts)
    with pytest.raises(WeightsError, match=r"constant \(dim,\)"):
        fixed_point(g, torch.ones(2))


def test_a_constant_of_zero_changes_nothing() -> None:
    x, a, h = sharpening_layer()
    plain, zero = simulate(x, a, h.mT, 40), simulate(x, a, h.mT, 40, constant=torch.zeros(6, dtype=torch.float64))
    torch.testing.assert_close(plain.hfc_lfc, zero.hfc_lfc)
    biased = simulate(x, a, h.mT, 2, "pre", constant=torch.ones(6, dtype=torch.float64))
    state = x
    for _ in range(2):
        state = state + a @ torch.nn.functional.layer_norm(state, (6,)) @ h.mT + 1
    torch.testing.assert_close(biased.x, state)
