from __future__ import annotations

import math

import pytest
import torch
from hypothesis import assume, given, settings
from reference import iterate_by_squaring, update_matrix
from theory.matrices import make_a, make_h, problems

from unsmooth.errors import FeatureError, WeightsError
from unsmooth.theory import dominance, limit, simulate
from unsmooth.theory.limits import limit_of
from unsmooth.theory.prediction import direction_cosine, direction_hfc_lfc, real_direction
from unsmooth.theory.simulate import hfc_lfc, mean_cosine


@settings(max_examples=60, deadline=None)
@given(problems(h_kinds=("general", "symmetric", "eigen-mixed", "rotation", "repeated"), a_kinds=("softmax", "causal")))
def test_scaled_powers_approach_the_limit(problem: tuple[torch.Tensor, ...]) -> None:
    h, a, x = problem
    found = dominance(h, a)
    assume(found.margin > 0.01 and max(found.a.condition, found.h.condition) < 1e4)
    layers = math.ceil(40 / found.margin) if math.isfinite(found.margin) else 40
    top = max(found.rho_lfc, found.rho_hfc)
    stacked = torch.linalg.matrix_power(update_matrix(h, a) / top, layers) @ x.T.reshape(-1)
    expected = stacked.reshape(x.shape[1], x.shape[0]).T
    torch.testing.assert_close(limit(x, h, a, layers=layers), expected, atol=1e-7 * float(x.norm()), rtol=1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_predicted_metrics_of_a_sharpening_limit_are_those_of_the_iterated_features(seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    h, a = make_h("sharpening", 4, g), make_a("symmetrisable", 6, g)
    found = dominance(h, a)
    end = iterate_by_squaring(h, a, torch.randn(6, 4, generator=g, dtype=torch.float64))
    assert found.predicted.hfc_lfc == pytest.approx(float(hfc_lfc(end)), rel=1e-4)
    assert found.predicted.cosine == pytest.approx(float(mean_cosine(end)), abs=1e-6)
    assert found.predicted.effective_rank == 1
    assert found.limit_rank == int(torch.linalg.matrix_rank(end, rtol=1e-6)) == 1


def test_the_phase_of_an_eigenvector_says_nothing() -> None:
    vector = torch.tensor([1.0, -2.0, 0.5, 0.0], dtype=torch.float64)
    turned = real_direction(vector * torch.exp(torch.tensor(0.7j, dtype=torch.complex128)))
    torch.testing.assert_close(turned, -vector)  # the largest entry is made positive
    assert direction_hfc_lfc(turned) == pytest.approx(hfc_lfc(vector[:, None]).item())
    assert direction_cosine(turned) == pytest.approx((1 - 3) / 12)  # of six pairs one agrees, two do not
    assert direction_hfc_lfc(vector - vector.mean()) == math.inf


def test_smoothing_limit_is_the_same_vector_for_all_tokens() -> None:
    g = torch.Generator().manual_seed(1)
    h, a = make_h("smoothing", 4, g), make_a("softmax", 6, g)
    reached = limit(torch.randn(6, 4, generator=g, dtype=torch.float64), h, a)
    assert float((reached - reached[:1]).abs().max()) < 1e-12 < float(reached.norm())
    values, vectors = torch.linalg.eigh(h)
    direction = vectors[:, values.argmax()]  # v_j of H, not of its transpose
    cosine = torch.nn.functional.cosine_similarity(reached[0], direction, dim=0)
    assert abs(float(cosine)) == pytest.approx(1.0)


def test_the_limit_uses_eigenvectors_of_h_and_not_of_its_transpose() -> None:
    g = torch.Generator().manual_seed(2)
    a = make_a("softmax", 5, g)
    h = torch.tensor([[0.9, 5.0], [0.0, 0.1]], dtype=torch.float64)  # v = e_1 for 0.9; the transpose has another
    reached = limit(torch.randn(5, 2, generator=g, dtype=torch.float64), h, a)
    assert float(reached[:, 1].abs().max()) < 1e-12 < float(reached[:, 0].abs().min())
    simulated = simulate(torch.randn(5, 2, generator=g, dtype=torch.float64), a, h.mT, layers=200).x
    assert float(simulated[:, 1].abs().max()) < 1e-10 < float(simulated[:, 0].abs().min())


def test_a_negative_eigenvalue_turns_the_limit_with_every_layer() -> None:
    x = torch.randn(3, 2, dtype=torch.float64)
    h, a = -3 * torch.eye(2, dtype=torch.float64), make_a("softmax", 3, torch.Generator().manual_seed(0))
    even = limit(x, h, a)
    torch.testing.assert_close(limit(x, h, a, layers=1), -even)
    torch.testing.assert_close(limit(x, h, a, layers=2), even)
    torch.testing.assert_close(limit_of(dominance(h, a), x), even)
    assert float(even.norm()) > 0


def test_where_nothing_is_left_the_limit_is_zero() -> None:
    x, h = torch.randn(3, 2, dtype=torch.float64), torch.zeros(2, 2, dtype=torch.float64)
    assert not limit(x, h, make_a("softmax", 3, torch.Generator().manual_seed(0)), residual=False).any()


def test_a_limit_of_rank_two_has_rank_two() -> None:
    a = torch.block_diag(
        make_a("softmax", 3, torch.Generator().manual_seed(0)), torch.full((2, 2), 0.5, dtype=torch.float64)
    )
    h = 0.5 * torch.eye(3, dtype=torch.float64)
    x = torch.randn(5, 3, dtype=torch.float64)
    assert dominance(h, a).limit_rank == int(torch.linalg.matrix_rank(limit(x, h, a))) == 2


def test_defective_matrices_and_wrong_shapes_are_refused() -> None:
    jordan = torch.tensor([[0.5, 1.0], [0.0, 0.5]], dtype=torch.float64)
    a = make_a("softmax", 3, torch.Generator().manual_seed(0))
    with pytest.raises(WeightsError, match=r"not diagonalisable .* use simulate"):
        limit(torch.randn(3, 2, dtype=torch.float64), jordan, a)
    with pytest.raises(FeatureError, match=r"x0 must be \(tokens, dim\) = \(3, 2\)"):
        limit(torch.randn(2, 3, dtype=torch.float64), jordan, a)
