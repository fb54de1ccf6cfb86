"""Numbers near the ends of float64, and tokens of very different length, in both ways to evaluate."""

from __future__ import annotations

import pytest
import torch

import unsmooth
from unsmooth.metrics import definitions
from unsmooth.metrics.engine import Evaluator
from unsmooth.metrics.registry import METRICS, resolve
from unsmooth.metrics.tolerance import tolerance

SCALE_FREE = [name for name, row in METRICS.items() if name != "dirichlet" and not row.over_data]


def evaluated(
    x: torch.Tensor, metrics: list[str], deferred: bool, mask: torch.Tensor | None = None
) -> dict[str, torch.Tensor]:
    evaluator: Evaluator[str] = Evaluator(resolve(metrics), deferred)
    evaluator.add("x", x, mask)
    found = evaluator.flush()["x"]
    assert not any(bool(f.nonfinite.any()) for f in evaluator.flagged.values())
    return found


def unit_cosine(x: torch.Tensor) -> torch.Tensor:
    """Mean cosine over pairs, one pair after the other, each token made a unit vector first."""
    size = x.abs().amax(-1, keepdim=True)
    unit = x / size
    unit = unit / unit.norm(dim=-1, keepdim=True)
    n = x.shape[-2]
    pairs = [(unit[..., i, :] * unit[..., j, :]).sum(-1) for i in range(n) for j in range(i + 1, n)]
    return torch.stack(pairs).mean(0)


@pytest.mark.parametrize("deferred", [False, True])
@pytest.mark.parametrize("shape", [(3, 6, 9), (3, 9, 6)])
@pytest.mark.parametrize("exponent", [-300, -160, 0, 153, 160, 300])
def test_metrics_do_not_depend_on_the_size_of_the_features(
    exponent: int, shape: tuple[int, ...], deferred: bool
) -> None:
    x = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 0.5
    here, there = (evaluated(y, SCALE_FREE, deferred) for y in (x, x * 10.0**exponent))
    for name in SCALE_FREE:
        torch.testing.assert_close(there[name], here[name], rtol=tolerance(torch.float64, 100), atol=1e-9, msg=name)
    mask = torch.ones(shape[:2], dtype=torch.bool)
    mask[1, 2:4] = False
    here, there = (evaluated(y, SCALE_FREE, deferred, mask) for y in (x, x * 10.0**exponent))
    for name in SCALE_FREE:
        torch.testing.assert_close(there[name], here[name], rtol=tolerance(torch.float64, 100), atol=1e-9, msg=name)


@pytest.mark.parametrize("deferred", [False, True])
def test_the_one_metric_with_a_unit_keeps_it(deferred: bool) -> None:
    x = torch.randn(2, 5, 4, dtype=torch.float64)
    here, there = (evaluated(y, ["dirichlet"], deferred)["dirichlet"] for y in (x, x * 1e140))
    torch.testing.assert_close(there / 1e280, here, rtol=1e-12, atol=0.0)


@pytest.mark.parametrize("deferred", [False, True])
@pytest.mark.parametrize(("dtype", "ratio"), [(torch.float64, 1e-200), (torch.float64, 1e20), (torch.float32, 1e20)])
def test_cosines_of_tokens_of_very_different_length_are_right(dtype: torch.dtype, ratio: float, deferred: bool) -> None:
    x = torch.randn(4, 5, 7, dtype=dtype, generator=torch.Generator().manual_seed(1))
    x[:, 1] *= ratio
    expected = unit_cosine(x.double())
    found = evaluated(x, ["cosine_similarity"], deferred)["cosine_similarity"]
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(unsmooth.cosine_similarity(x), expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(
        definitions.vita2022(x.double()), definitions.vita2022(x.double() * 1e100), rtol=1e-9, atol=0
    )


def test_extreme_features_have_gradients() -> None:
    x = (torch.randn(2, 4, 3, dtype=torch.float64) * 1e-170).requires_grad_()
    unsmooth.cosine_similarity(x).sum().backward()
    assert x.grad is not None
    assert bool(x.grad.isfinite().all())
    assert float(x.grad.abs().max()) > 1e160
