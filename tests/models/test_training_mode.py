"""In training mode, with dropout and dropped paths, what a point says it adds is what is added."""

from __future__ import annotations

import pytest
import torch
from model_cases import CASES, Case, _timm, every_case
from torch import Tensor, nn

from unsmooth.metrics.tolerance import tolerance
from unsmooth.models import hook_points, view
from unsmooth.models.forward import call

_SUMS = {
    "pre": (("pre", "attn", "mid"), ("mid", "mlp", "post")),
    "post": (("pre", "attn", "attn_sum"), ("mid", "mlp", "mlp_sum")),
    "parallel": (("pre", "attn", "mlp", "post"),),
    "parallel-shared": (("pre", "attn", "mlp", "post"),),
}


def assert_sums(case: Case) -> None:
    v = view(case.model(torch.float64).train())
    for module in v.model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.2
    seen: dict[str, Tensor] = {}
    exact = [point for point in v.points if point.rpartition(".")[2] not in v.family.eval_only]
    with torch.no_grad(), hook_points(v, exact, seen.__setitem__):
        call(v.model, case.inputs(torch.float64))
    for i in range(len(v.layers)):
        for *added, total in _SUMS[v.family.placement]:
            terms = [seen.get(f"blocks.{i}.{point}") for point in (*added, total)]
            found = [x for x in terms if x is not None]
            if len(found) == len(terms):
                *summands, result = found
                error = float((sum(summands[1:], summands[0]) - result).abs().max())
                assert error <= tolerance(torch.float64, 1) * max(float(result.abs().max()), 1.0)


@every_case()
def test_points_are_exact_after_dropout(case: Case) -> None:
    assert_sums(case)


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "deit3_small_patch16_224", "eva02_tiny_patch14_224"])
def test_points_are_exact_after_dropped_paths(name: str) -> None:
    like = next(case for case in CASES if case.name == "timm-vit")
    options = {"drop_path_rate": 0.5, "proj_drop_rate": 0.2}
    assert_sums(Case(name, "", _timm(name, **options), like.batch))
