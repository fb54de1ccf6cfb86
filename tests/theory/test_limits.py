from __future__ import annotations

import math

import pytest
import torch
from hypothesis import assume, given, settings
from reference.theory import iterate_by_squaring, update_matrix
from theory.matrices import make_a, make_h, problems

from unsmooth.errors import FeatureError, WeightsError
from unsmooth.metrics import cosine_similarity, hfc_lfc_ratio
from unsmooth.theory import dominance, limit, simulate
from unsmooth.theory.limits import limit_of
from unsmooth.theory.prediction import direction_cosine, direction_hfc_lfc, real_direction


@settings(max_examples=60, deadline=None)
@given(problems(h_kinds=("general", "symmetric", "eigen-mixed", "rotation", "repeated"), a_kinds=("softmax", "causal")))
def test_scaled_powers_approach_the_limit(problem: tuple[torch.Tensor, ...]) -> None:
    h, a, x = problem
    found = dominance(a, h.mT)
    assume(found.margin > 0.01 and max(found.a.condition, found.h.condition) < 1e4)
    layers = math.ceil(40 / found.margin) if math.isfinite(found.margin) else 40
    top = max(found.rho_lfc, found.rho_hfc)
    stacked = torch.linalg.matrix_power(update_matrix(h, a) / top, layers) @ x.T.reshape(-1)
    expected = stacked.reshape(x.shape[1], x.shape[0]).T
    torch.testing.assert_close(limit(x, a, h.mT, layers=layers), expected, atol=1e-7 * float(x.norm()), rtol=1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_predicted_metrics_of_a_sharpening_limit_are_those_of_the_iterated_features(seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    h, a = make_h("sharpening", 4, g), make_a("symmetrisable", 6, g)
    found = dominance(a, h.mT)
    end = iterate_by_squaring(h, a, torch.randn(6, 4, generator=g, dtype=torch.float64))
    assert found.predicted.hfc_lfc == pytest.approx(float(hfc_lfc_ratio(end)), rel=1e-4)
    assert found.predicted.cosine == pytest.approx(float(cosine_similarity(end)), abs=1e-6)
    assert found.predicted.effective_rank == 1
    assert found.limit_rank == int(torch.linalg.matrix_rank(end, rtol=1e-6)) == 1


def test_the_phase_of_an_eigenvector_says_nothing() -> None:
    vector = torch.tensor([1.0, -2.0, 0.5, 0.0], dtype=torch.float64)
    turned = real_direction(vector * torch.exp(torch.tensor(0.7j, dtype=torch.complex128)))
    torch.testing.assert_close(turned, -vector)  # the largest entry is made positive
    assert direction_hfc_lfc(turned) == pytest.approx(hfc_lfc_ratio(vector[:, None]).item())
    assert direction_cosine(turned) == pytest.approx((1 - 3) / 12)  # of six pairs one agrees, two do not
    assert direction_hfc_lfc(vector - vector.mean()) == math.inf


def test_smoothing_limit_is_the_same_vector_for_all_tokens() -> None:
    g = torch.Generator().manual_seed(1)
    h, a = make_h("smoothing", 4, g), make_a("softmax", 6, g)
    reached = limit(torch.randn(6, 4, generator=g, dtype=torch.float64), a, h.mT)
    assert float((reached - reached[:1]).abs().max()) < 1e-12 < float(reached.norm())
    values, vectors = torch.linalg.eigh(h)
    direction = vectors[:, values.argmax()]  # v_j of H, not of its transpose
    cosine = torch.nn.functional.cosine_similarity(reached[0], direction, dim=0)
    assert abs(float(cosine)) == pytest.approx(1.0)


def test_the_limit_uses_eigenvectors_of_h_and_not_of_its_transpose() -> None:
    g = torch.Generator().manual_seed(2)
    a = make_a("softmax", 5, g)
    h = torch.tensor([[0.9, 5.0], [0.0, 0.1]], dtype=torch.float64)  # v = e_1 for 0.9; the transpose has another
    reached = limit(torch.randn(5, 2, generator=g, dtype=torch.float64), a, h.mT)
    assert float(reached[:, 1].abs().max()) < 1e-12 < float(reached[:, 0].abs().min())
    simulated = simulate(torch.randn(5, 2, generator=g, dtype=torch.float64), a, h.mT, layers=200).x
    assert float(simulated[:, 1].abs().max()) < 1e-10 < float(simulated[:, 0].abs().min())


def test_a_negative_eigenvalue_turns_the_limit_with_every_layer() -> None:
    x = torch.randn(3, 2, dtype=torch.float64)
    h, a = -3 * torch.eye(2, dtype=torch.float64), make_a("softmax", 3, torch.Generator().manual_seed(0))
    even = limit(x, a, h.mT)
    torch.testing.assert_close(limit(x, a, h.mT, layers=1), -even)
    torch.testing.assert_close(limit(x, a, h.mT, layers=2), even)
    torch.testing.assert_close(limit_of(x, dominance(a, h.mT)), even)
    assert float(even.norm()) > 0


def test_where_nothing_is_left_the_limit_is_zero() -> None:
    x, h = torch.randn(3, 2, dtype=torch.float64), torch.zeros(2, 2, dtype=torch.float64)
    assert not limit(x, make_a("softmax", 3, torch.Generator().manual_seed(0)), h.mT, residual=False).any()


def test_a_limit_of_rank_two_has_rank_two() -> None:
    a = torch.block_diag(
        make_a("softmax", 3, torch.Generator().manual_seed(0)), torch.full((2, 2), 0.5, dtype=torch.float64)
    )
    h = 0.5 * torch.eye(3, dtype=torch.float64)
    x = torch.randn(5, 3, dtype=torch.float64)
    assert dominance(a, h.mT).limit_rank == int(torch.linalg.matrix_rank(limit(x, a, h.mT))) == 2


def test_defective_matrices_and_wrong_shapes_are_refused() -> None:
    jordan = torch.tensor([[0.5, 1.0], [0.0, 0.5]], dtype=torch.float64)
    a = make_a("softmax", 3, torch.Generator().manual_seed(0))
    with pytest.raises(WeightsError, match=r"not diagonalisable .* use simulate"):
        limit(torch.randn(3, 2, dtype=torch.float64), a, jordan.mT)
    with pytest.raises(FeatureError, match=r"x must be \(tokens, dim\) = \(3, 2\)"):
        limit(torch.randn(2, 3, dtype=torch.float64), a, jordan.mT)


def jordan(value: float, size: int) -> torch.Tensor:
    return value * torch.eye(size, dtype=torch.float64) + torch.diag(torch.ones(size - 1, dtype=torch.float64), 1)


REDUCIBLE = torch.block_diag(*[torch.full((3, 3), 1 / 3, dtype=torch.float64)] * 2)  # the eigenvalue 1 twice


@pytest.mark.parametrize(
    ("h", "rank"),
    [
        (jordan(0.5, 2), 1),  # one eigenvector, however often its eigenvalue counts
        (jordan(0.5, 3), 1),
        (torch.diag(torch.tensor([0.5, 0.5], dtype=torch.float64)), 2),
        (torch.block_diag(jordan(0.5, 2), jordan(0.5, 2)), 2),
        (torch.block_diag(jordan(0.5, 2), torch.eye(1, dtype=torch.float64) * 0.5), 1),  # the longer block wins
        (torch.block_diag(jordan(0.5, 2), torch.eye(1, dtype=torch.float64) * 0.1), 1),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_the_rank_of_the_limit_counts_jordan_blocks(h: torch.Tensor, rank: int, turned: bool) -> None:
    """A defective H leaves rank 1 where its equal eigenvalues alone would say 2; a simulation shows it."""
    if turned:  # no basis in which the blocks could be read off
        basis = torch.randn(len(h), len(h), generator=torch.Generator().manual_seed(3), dtype=torch.float64)
        h = basis @ h @ torch.linalg.inv(basis)
    found = dominance(REDUCIBLE, h.mT)
    assert found.limit_rank == rank
    assert found.rank_collapse == (rank == 1)
    start = torch.randn(6, len(h), generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    early, late = (torch.linalg.svdvals(simulate(start, REDUCIBLE, h.mT, layers=layers).x) for layers in (400, 6400))
    if rank < len(late):
        ratio = [float(each[rank] / each[0]) for each in (early, late)]
        assert ratio[1] < 0.2 * ratio[0] or ratio[1] < 1e-12  # 1/ℓ: what a Jordan block leaves falls slowly
    if rank == 2:
        assert float(late[1] / late[0]) > 1e-3


def test_a_defective_attention_counts_its_blocks_too() -> None:
    # causal: 0.5 twice on the diagonal, one eigenvector; negative H makes it dominate against 1
    a = torch.tensor([[1.0, 0, 0], [0.5, 0.5, 0], [0.2, 0.3, 0.5]], dtype=torch.float64)
    h = -0.4 * torch.eye(2, dtype=torch.float64)
    found = dominance(a, h.mT)
    assert found.kind == "sharpening"
    assert found.limit_rank == 1
    run = [torch.linalg.svdvals(simulate(torch.eye(3, 2, dtype=torch.float64), a, h, n).x) for n in (200, 3200)]
    assert float(run[1][1] / run[1][0]) < 0.2 * float(run[0][1] / run[0][0])


def unit_differences(x: torch.Tensor) -> float:
    """Mean of 1 − cos over pairs, from differences, so that 1e-20 is still seen."""
    unit = x / x.norm(dim=-1, keepdim=True)
    n = len(x)
    return float(
        torch.cdist(unit, unit, compute_mode="donot_use_mm_for_euclid_dist").square().sum() / 2 / (n * (n - 1))
    )


def mixing_layer(slow: float, n: int = 16) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A symmetric smoothing H, and two groups of tokens that look at each other by `slow` only."""
    g = torch.Generator().manual_seed(0)
    q = torch.linalg.qr(torch.randn(6, 6, generator=g, dtype=torch.float64)).Q
    h = q * torch.tensor([0.9, 0.6, 0.4, 0.3, 0.2, 0.1], dtype=torch.float64) @ q.mT
    inner, other = (torch.randn(n // 2, n // 2, generator=g, dtype=torch.float64).softmax(-1) for _ in range(2))
    everyone = torch.randn(n, n, generator=g, dtype=torch.float64).softmax(-1)
    return (1 - slow) * torch.block_diag(inner, other) + slow * everyone, h, q[:, 0]


@pytest.mark.parametrize(("slow", "first", "last"), [(0.9, 25, 45), (0.2, 60, 90), (0.02, 80, 120)])
def test_gamma_is_the_rate_of_definition_1_and_kappa_that_of_the_other_two(slow: float, first: int, last: int) -> None:
    a, h, leading = mixing_layer(slow)
    found = dominance(a, h.mT)
    x = torch.randn(16, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 3 * leading
    runs = [simulate(x, a, h.mT, layers=layers) for layers in (first, last)]
    measured = {
        "exponent": [float(run.hfc_lfc[-1]) for run in runs],
        "rank_rate": [float(s[1] / s[0]) for s in (torch.linalg.svdvals(run.x) for run in runs)],
        "cosine_rate": [unit_differences(run.x) for run in runs],
    }
    for name, (before, after) in measured.items():
        assert math.log(after / before) / (last - first) == pytest.approx(getattr(found, name), rel=0.1)
    assert found.rank_rate < found.exponent < 0


def test_slow_mixing_leaves_h_its_own_gap_and_makes_the_cosine_wait() -> None:
    a, h, leading = mixing_layer(0.02)
    found = dominance(a, h.mT)
    # λ_A near 1: γ goes to 0, κ to the gap between H's first two eigenvalues
    assert found.exponent > -0.02
    assert found.rank_rate == pytest.approx(math.log(1.6 / 1.9), abs=0.02)
    # the second group starts on the other side: it must cross 0 before any angle can close
    x = torch.randn(16, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    x = 0.1 * x + torch.cat([1.5 * leading.expand(8, -1), -leading.expand(8, -1)])
    run = simulate(x, a, h.mT, layers=400)
    crossed = int((run.hfc_lfc > 1).sum())
    assert crossed > 100  # about ln(HFC/LFC)/|γ| = 1.6/0.009 layers
    assert float(run.cosine[crossed - 60]) < 0.2
    assert float(run.cosine[-1]) > 0.999
    assert float(torch.linalg.svdvals(simulate(x, a, h.mT, layers=100).x)[1]) < 1e-6  # the rank does not wait


def test_a_complex_pair_of_h_keeps_its_plane_and_kappa_is_gamma() -> None:
    turn = torch.tensor([[0.5, 0.4], [-0.4, 0.5]], dtype=torch.float64)
    h = torch.block_diag(turn, torch.tensor([[0.1]], dtype=torch.float64))
    a = mixing_layer(0.5)[0]
    found = dominance(a, h.mT)
    assert found.rank_rate == pytest.approx(found.exponent)
    assert dominance(REDUCIBLE, torch.eye(2, dtype=torch.float64).mT).rank_rate == 0.0  # rank two: nothing falls
