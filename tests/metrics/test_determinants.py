"""Sums over singular values from determinants are those of an SVD, to the accuracy that is promised."""

from __future__ import annotations

import math

import pytest
import reference
import torch

from unsmooth.metrics import spectrum
from unsmooth.metrics.determinants import root_sums
from unsmooth.metrics.engine import Evaluator
from unsmooth.metrics.features import Features
from unsmooth.metrics.registry import METRICS, resolve

N, D = 48, 64


def features(kind: str) -> torch.Tensor:
    """Features of each kind that a spectrum can be difficult for."""
    x = torch.randn(N, D, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    if kind == "decaying":
        return x * torch.exp(-torch.arange(D) / 6.0)
    if kind == "outlier":
        return x * torch.where(torch.arange(N) == 3, 1e3, 1.0)[:, None]
    if kind == "of rank five":
        return x[:, :5] @ x[:5]
    if kind == "half zero":
        return x * (torch.arange(N) < N // 2)[:, None]
    if kind == "equal":
        return torch.linalg.qr(x.mT).Q.mT * 7
    return {"plain": x, "smooth": x + 10, "square": x[:, :N], "tiny": 1e-40 * x}[kind]


@pytest.mark.parametrize(
    "kind", ["plain", "square", "smooth", "tiny", "decaying", "outlier", "of rank five", "half zero", "equal"]
)
def test_two_sums_give_the_effective_rank_of_an_svd(kind: str) -> None:
    x = features(kind)
    total, logs = root_sums((x @ x.mT)[None], torch.tensor([float(N)]))
    sigma = torch.linalg.svdvals(x)
    assert float(total) == pytest.approx(float(sigma.sum()), rel=3e-5)
    rank = math.exp(math.log(float(total)) - float(logs) / 2 / float(total))
    assert rank == pytest.approx(float(reference.entropy_rank(x)), rel=5e-5)


def test_matrices_of_zeros_and_of_nan_have_their_conventional_sums() -> None:
    both = torch.stack([torch.zeros(3, 3), torch.full((3, 3), math.nan)]).double()
    total, logs = root_sums(both, torch.full((2,), 3.0))
    assert total[0] == logs[0] == 0
    assert bool(total[1].isnan())


@pytest.mark.parametrize("shape", [(2, 7, 12), (2, 12, 7)])
@pytest.mark.parametrize("size", [1.0, 1e-5])
def test_measured_ranks_are_the_same_by_either_route(
    shape: tuple[int, ...], size: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = 1 + size * torch.randn(shape, dtype=torch.float64)
    mask = torch.arange(shape[1]).expand(shape[:2]) != 2
    found = []
    for route in (False, True):
        monkeypatch.setattr(spectrum.EigenProblem, "by_determinants", route)
        evaluator: Evaluator[str] = Evaluator(resolve("effective_rank"), deferred=True)
        evaluator.add_each(x, {"all": None, "some": mask})
        found.append(torch.cat([values["effective_rank"] for values in evaluator.flush().values()]))
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=0)


def test_eigenvalues_are_found_where_another_metric_needs_each_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spectrum.EigenProblem, "by_determinants", True)
    x = torch.randn(2, 6, 9, dtype=torch.float64)
    evaluator: Evaluator[str] = Evaluator(resolve("effective_rank,stable_rank"), deferred=True)
    evaluator.add("x", x)
    values = evaluator.flush()["x"]
    for name in ("effective_rank", "stable_rank"):
        torch.testing.assert_close(values[name], METRICS[name].value(Features(x)), rtol=1e-4, atol=0)
