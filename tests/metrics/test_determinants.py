"""Sums over singular values from determinants are those of an SVD, to the accuracy that is promised."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from reference import metrics as reference

from unsmooth.metrics import spectrum, tridiagonal
from unsmooth.metrics.determinants import root_sums
from unsmooth.metrics.engine import Evaluator
from unsmooth.metrics.features import Features
from unsmooth.metrics.openblas import openblas
from unsmooth.metrics.registry import METRICS, resolve

N, D = 48, 64
Route = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
with_openblas = pytest.mark.skipif(openblas() is None, reason="numpy carries no OpenBLAS here")
ROUTES = [
    pytest.param(root_sums, id="factors"),
    pytest.param(tridiagonal.root_sums, id="tridiagonal", marks=with_openblas),
]


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
@pytest.mark.parametrize("route", ROUTES)
def test_two_sums_give_the_effective_rank_of_an_svd(kind: str, route: Route) -> None:
    x = features(kind)
    total, logs = route((x @ x.mT)[None], torch.tensor([float(N)]))
    sigma = torch.linalg.svdvals(x)
    assert float(total) == pytest.approx(float(sigma.sum()), rel=3e-5)
    rank = math.exp(math.log(float(total)) - float(logs) / 2 / float(total))
    assert rank == pytest.approx(float(reference.entropy_rank(x)), rel=5e-5)


@pytest.mark.parametrize("route", ROUTES)
def test_matrices_of_zeros_and_of_nan_have_their_conventional_sums(route: Route) -> None:
    both = torch.stack([torch.zeros(3, 3), torch.full((3, 3), math.nan)]).double()
    total, logs = route(both, torch.full((2,), 3.0))
    assert total[0] == logs[0] == 0
    assert bool(total[1].isnan())


@with_openblas
def test_tridiagonal_matrices_have_the_eigenvalues_they_should() -> None:
    x = torch.randn(3, 30, 40, dtype=torch.float64)
    gram = x @ x.mT
    before = gram.clone()
    (diagonal, off), blas = tridiagonal.tridiagonal_form(gram), openblas()
    forms = [np.diag(d) + np.diag(e, 1) + np.diag(e, -1) for d, e in zip(diagonal, off, strict=True)]
    np.testing.assert_allclose(np.linalg.eigvalsh(forms), torch.linalg.eigvalsh(gram).numpy(), rtol=1e-9)
    assert torch.equal(gram, before)
    assert blas is not None
    threads = blas._get_threads()
    with blas.threads(threads + 1):
        assert blas._get_threads() == threads + 1
    assert blas._get_threads() == threads


@pytest.mark.parametrize("here", [pytest.param(True, marks=with_openblas), False])
def test_a_cpu_measures_the_same_with_and_without_numpys_openblas(here: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not here:
        for module in (spectrum, tridiagonal):
            monkeypatch.setattr(module, "openblas", lambda: None)
    x = torch.randn(3, 60, 70) + torch.randn(70)
    mask = torch.arange(60).expand(3, 60) != 2
    problem = Features(x).problem
    assert problem.by_determinants is here
    torch.testing.assert_close(problem.gram, x.double() @ x.double().mT, rtol=1e-12, atol=1e-9)
    evaluator: Evaluator[str] = Evaluator(resolve("effective_rank"))
    evaluator.add_each(x, {"all": None, "some": mask})
    evaluator.add("others", x[:, :50])
    found = {key: values["effective_rank"] for key, values in evaluator.flush().items()}
    kept = {"all": x, "some": x[:, mask[0]], "others": x[:, :50]}
    for key, tokens in kept.items():
        truth = torch.stack([reference.entropy_rank(each.double()) for each in tokens])
        torch.testing.assert_close(found[key], truth, rtol=1e-6, atol=0)


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
