from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unsmooth.errors import OptionError
from unsmooth.theory import corollary3, dominance, lemma2, simulate

reals = st.floats(-3, 3).map(lambda v: round(v, 3))


def exhaustive(lambda_h: list[float], lambda_a: list[float]) -> float:
    return max(abs(1 + h * a) for h in lambda_h for a in lambda_a)


def named(lambda_h: list[float], lambda_a: list[float]) -> tuple[float, bool]:
    case = lemma2(torch.tensor(lambda_h), torch.tensor(lambda_a))
    return abs(1 + case.lambda_h * case.lambda_a), case.holds


@settings(max_examples=300, deadline=None)
@given(st.lists(reals, min_size=1, max_size=6), st.lists(st.floats(-0.99, 0.99), min_size=1, max_size=5))
def test_the_published_table_names_the_maximum_where_its_assumptions_hold(h: list[float], a: list[float]) -> None:
    value, holds = named(h, [*a, 1.0])
    best = exhaustive(h, [*a, 1.0])
    assert value <= best + 1e-6
    if holds:
        assert value == pytest.approx(best, rel=1e-5, abs=1e-6)


def test_every_line_of_the_table_is_reached() -> None:
    lines = [
        ([0.5, -0.2], [0.1, 1.0], 1, 0.5, "λ_1^A > 0, |1 + λ_r| ≥ 1"),
        ([-0.5, -0.2], [0.1, 1.0], 2, -0.2, "λ_1^A > 0, |1 + λ_r| < 1"),
        ([0.5, -0.2], [-0.1, 1.0], 1, 0.5, "λ_1^A < 0, φ_r ≤ π/2"),
        ([0.1, -2.0], [-0.9, 1.0], 2, -2.0, "λ_1^A < 0, φ_r ≤ π/2"),
        ([-2.5, 0.1], [-0.1, 1.0], 1, -2.5, "λ_1^A < 0, φ_r > π/2"),
        ([-2.5, 0.1], [-0.9, 1.0], 2, -2.5, "λ_1^A < 0, φ_r > π/2"),
        ([0.3, 0.1], [-0.9, 1.0], 1, 0.3, "λ_1^A < 0, φ_r ≤ π/2, no λ_k"),
        # the ends of the cases
        ([0.0, -0.5], [0.1, 1.0], 1, 0.0, "λ_1^A > 0, |1 + λ_r| ≥ 1"),
        ([-1.0, -0.5], [0.1, 1.0], 2, -0.5, "λ_1^A > 0, |1 + λ_r| < 1"),
        ([0.0, -0.5], [-0.1, 1.0], 2, -0.5, "λ_1^A < 0, φ_r ≤ π/2"),
        ([0.0], [-0.9, 1.0], 1, 0.0, "λ_1^A < 0, φ_r ≤ π/2, no λ_k"),
    ]
    for h, a, type_, value, case in lines:
        found = lemma2(torch.tensor(h), torch.tensor(a))
        assert (found.type, found.case, found.holds) == (type_, case, True)
        assert found.lambda_h.real == pytest.approx(value)


@pytest.mark.parametrize(
    ("h", "a", "says", "truth"),
    [([-1.9, -1.85], [0.9, 1.0], 0.665, 0.9), ([1.0, -0.1, -1.5], [-0.9, 1.0], 2.0, 2.35)],
)
def test_documented_counterexamples_to_lemma_2(h: list[float], a: list[float], says: float, truth: float) -> None:
    value, holds = named(h, a)
    assert value == pytest.approx(says, abs=1e-6)
    assert exhaustive(h, a) == pytest.approx(truth)
    assert not holds


def test_complex_spectra_of_a_are_outside_the_lemma() -> None:
    with pytest.raises(OptionError, match="use dominance"):
        lemma2(torch.tensor([0.5]), torch.tensor([0.3 + 0.1j, 1.0]))
    with pytest.raises(OptionError, match="that include 1"):
        lemma2(torch.tensor([0.5]), torch.tensor([0.3, 0.5]))


def test_corollary_3_is_silent_about_mixed_and_complex_spectra() -> None:
    assert corollary3(torch.tensor([-0.5, 0.5])) is None
    assert corollary3(torch.tensor([-1.2])) is None
    assert corollary3(torch.tensor([-0.5 + 0.1j])) is None


def test_a_step_above_minus_two_is_not_enough_for_sharpening() -> None:
    """All λ in [−2, −1): the mean token shrinks, and yet the layer smooths, because HFC shrinks faster."""
    n = 8
    a = 0.9 * torch.eye(n, dtype=torch.float64) + 0.1 / n
    h = torch.diag(torch.tensor([-1.9, -1.85, -1.8], dtype=torch.float64))
    found = dominance(a, h.mT)
    assert corollary3(torch.linalg.eigvals(h)) is None
    assert found.kind == "smoothing"
    assert found.exponent == pytest.approx(-0.24, abs=0.005)
    run = simulate(torch.randn(n, 3, dtype=torch.float64), a, h.mT, layers=200)
    assert float(run.hfc_lfc[0]) > 1
    assert float(run.hfc_lfc[-1]) < 1e-14
    # the step that Corollary 3 allows sharpens, for this A and for every other
    assert corollary3(torch.linalg.eigvals(h / 1.9)) == "sharpening"
    assert dominance(a, (h / 1.9).mT).kind == "sharpening"


def test_the_docstrings_own_counterexample_smooths_too() -> None:
    a = torch.tensor([[0.95, 0.05], [0.05, 0.95]], dtype=torch.float64)  # eigenvalues 0.9 and 1
    found = dominance(a, torch.diag(torch.tensor([-1.9, -1.85], dtype=torch.float64)).mT)
    assert (found.kind, round(found.rho_lfc, 3), round(found.rho_hfc, 3)) == ("smoothing", 0.9, 0.71)
