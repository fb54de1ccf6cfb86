from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from reference.theory import iterated_verdict, update_matrix
from theory.matrices import make_a, make_h, problems

from unsmooth.errors import WeightsError
from unsmooth.theory import dominance
from unsmooth.theory.dominance import log_ratio

A = torch.tensor([[0.6, 0.3, 0.1], [0.1, 0.7, 0.2], [0.3, 0.0, 0.7]], dtype=torch.float64)


@settings(max_examples=600, deadline=None)
@given(problems())
def test_the_verdict_is_what_iteration_shows(problem: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> None:
    h, a, x = problem
    found = dominance(a, h.mT)
    # squaring a defective matrix very often is where the reference, not the verdict, loses its digits
    reference_limit = 1e-3 if max(found.h.condition, found.a.condition) > 1e6 else 1e-10
    if found.margin > max(found.tolerance, reference_limit):
        assert found.kind == iterated_verdict(h, a, x, found.margin)


@settings(max_examples=100, deadline=None)
@given(problems(h_kinds=("general", "symmetric", "smoothing", "sharpening", "rotation")))
def test_without_the_residual_type_one_always_dominates(problem: tuple[torch.Tensor, ...]) -> None:
    h, a, x = problem
    found = dominance(a, h.mT, residual=False)
    assert any(pair.endpoint == "largest" for pair in found.pairs)  # Corollary 1
    if found.margin > max(found.tolerance, 1e-10):
        assert found.kind == iterated_verdict(h, a, x, found.margin, residual=False)


@settings(max_examples=60, deadline=None)
@given(problems())
def test_moduli_are_those_of_the_dense_update(problem: tuple[torch.Tensor, ...]) -> None:
    h, a, _ = problem
    found = dominance(a, h.mT)
    radius = float(torch.linalg.eigvals(update_matrix(h, a)).abs().max())
    assert max(found.rho_lfc, found.rho_hfc) == pytest.approx(radius, abs=2e-5)


def test_corollary_3_both_halves() -> None:
    g = torch.Generator().manual_seed(0)
    for kind in ("softmax", "causal", "sink"):
        a = make_a(kind, 6, g)
        sharp = dominance(a, make_h("eigen-sharpening", 5, g).mT)
        assert (sharp.kind, sharp.input_convergence, sharp.angle_convergence) == ("sharpening", False, False)
        smooth = dominance(a, make_h("smoothing", 5, g).mT)
        assert (smooth.kind, smooth.input_convergence, smooth.angle_convergence) == ("smoothing", True, True)
        assert sharp.exponent > 0 > smooth.exponent
        assert smooth.limit_rank == 1
        assert smooth.rank_collapse


def test_exponent_and_margin_by_hand() -> None:
    # λ_A = 1, 0.5 and λ_H = −0.5, −0.2: the moduli are 0.5, 0.8 (Perron) and 0.75, 0.9
    a = torch.tensor([[0.75, 0.25], [0.25, 0.75]], dtype=torch.float64)
    h = torch.tensor([[-0.5, 3.0], [0.0, -0.2]], dtype=torch.float64)
    found = dominance(a, h.mT)
    assert found.exponent == pytest.approx(math.log(0.9 / 0.8))
    assert found.margin == pytest.approx(math.log(0.9 / 0.8))
    assert found.small_step == pytest.approx(-0.1 - -0.2)
    (pair,) = found.pairs
    assert (pair.token, pair.endpoint) == (0, "smallest")
    assert pair.lambda_h.real == pytest.approx(-0.2)


def test_complex_winner_is_said_to_be_neither_endpoint() -> None:
    cycle = torch.tensor([[0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.8, 0.1, 0.1]], dtype=torch.float64)
    h = torch.tensor([[-1.0, 0.2], [0.0, -0.9]], dtype=torch.float64)
    found = dominance(cycle, h.mT)
    assert found.endpoint == "neither"
    assert found.kind == "sharpening"
    assert found.predicted.cosine is None


def test_the_endpoint_is_told_where_all_winners_share_it() -> None:
    h = torch.diag(torch.tensor([0.5, 0.1], dtype=torch.float64))
    symmetric = torch.tensor([[0.6, 0.3, 0.1], [0.3, 0.4, 0.3], [0.1, 0.3, 0.6]], dtype=torch.float64)
    assert dominance(symmetric, h.mT).endpoint == "largest"
    assert dominance(symmetric, (-h).mT).endpoint == "smallest"
    assert dominance(symmetric, torch.diag(torch.tensor([-0.5, 0.0], dtype=torch.float64)).mT).endpoint == "neither"


@settings(max_examples=40, deadline=None)
@given(problems(a_kinds=("softmax", "causal", "sink")))
def test_both_growths_are_those_of_the_mean_and_of_what_is_left(problem: tuple[torch.Tensor, ...]) -> None:
    h, a, _ = problem
    found = dominance(a, h.mT)
    of_h, of_a = torch.linalg.eigvals(h), torch.linalg.eigvals(a)
    rest = of_a[(of_a - 1).abs().argsort()[1:]]  # Perron's root is 1
    assert found.rho_lfc == pytest.approx(float((1 + of_h).abs().max()), abs=2e-5)
    assert found.rho_hfc == pytest.approx(float((1 + rest[:, None] * of_h).abs().max()), abs=2e-5)


def test_eigenvectors_have_length_one() -> None:
    a = make_a("softmax", 3, torch.Generator().manual_seed(0))
    found = dominance(a.float(), A.float().mT)
    for eigen in (found.a, found.h):
        assert eigen.vectors.dtype == torch.complex128
        torch.testing.assert_close(eigen.vectors.norm(dim=0), torch.ones(3, dtype=torch.float64))


def test_a_null_space_that_never_moves_is_a_mixed_verdict() -> None:
    h = torch.diag(torch.tensor([-0.5, 0.0], dtype=torch.float64))
    found = dominance(A, h.mT)
    assert found.kind == "mixed"
    assert found.exponent == pytest.approx(0.0, abs=1e-12)
    assert found.limit_rank == 1  # three tokens, one feature that stays


def test_limit_rank_counts_independent_terms() -> None:
    blocks = torch.block_diag(A, A)  # the eigenvalue 1 twice
    repeated = 0.5 * torch.eye(3, dtype=torch.float64)
    assert dominance(blocks, repeated.mT).limit_rank == 2
    turning = torch.tensor([[0.5, -0.4], [0.4, 0.5]], dtype=torch.float64)
    assert dominance(A, turning.mT).limit_rank == 1  # a conjugate pair of H, one direction of A


def test_float32_inputs_get_a_float32_tolerance() -> None:
    single, double = dominance(A.float(), A.float().mT), dominance(A, A.mT)
    assert single.tolerance > 1e6 * double.tolerance
    assert single.kind == double.kind
    for h, a in ((A.float(), A), (A, A.float())):
        assert dominance(a, h.mT).tolerance == pytest.approx(single.tolerance, rel=1e-3)


def test_log_ratio_of_zeros() -> None:
    assert log_ratio(1.0, 0.0) == math.inf
    assert log_ratio(0.0, 1.0) == -math.inf
    assert math.isnan(log_ratio(0.0, 0.0))


def test_all_minus_one_eigenvalues_kill_the_mean() -> None:
    found = dominance(A, (-torch.eye(2, dtype=torch.float64)).mT)
    assert found.exponent == math.inf
    assert found.kind == "sharpening"


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(WeightsError, match=r"h must be \(dim, dim\)"):
        dominance(A, torch.zeros(2, 3).mT)
    with pytest.raises(WeightsError, match="one \\(tokens, tokens\\) matrix"):
        dominance(A[None], torch.eye(2).mT)
    with pytest.raises(WeightsError, match="h holds NaN"):
        dominance(A, torch.full((2, 2), torch.nan).mT)
