"""Every family: residual identities, point firing, attention reconstruction."""

from __future__ import annotations

import torch
from model_cases import BATCH, Case, D, every_case
from torch import Tensor

from unsmooth.forward import call
from unsmooth.models import ModelView, check_attention, hook_points, view
from unsmooth.tolerance import tolerance


def trace(v: ModelView, batch: object) -> dict[str, Tensor]:
    """All points of one forward pass."""
    seen: dict[str, Tensor] = {}

    def keep(point: str, x: Tensor) -> None:
        assert point not in seen
        seen[point] = x

    with torch.no_grad(), hook_points(v, v.points, keep):
        call(v.model, batch)
    return seen


def assert_close(a: Tensor, b: Tensor, dtype: torch.dtype | None = None) -> None:
    dtype = dtype or a.dtype
    atol = tolerance(dtype, 1) * float(b.abs().max())
    assert torch.allclose(a, b, rtol=0, atol=atol), float((a - b).abs().max()) / atol


@every_case()
def test_view_says_what_the_model_is(case: Case) -> None:
    v = view(case.model())
    assert v.family.name == case.family
    assert len(v.layers) == case.layers
    assert v.prefix_tokens == case.prefix
    assert v.causal == case.causal
    assert v.width == D
    assert [layer.index for layer in v.layers] == list(range(case.layers))


@every_case()
def test_residual_identities_hold(case: Case) -> None:
    v = view(case.model(torch.float64))
    x = trace(v, case.inputs(torch.float64))
    assert set(x) == set(v.points)
    assert all(t.shape[0] == BATCH and t.shape[2] == v.width for t in x.values())
    for layer in v.layers:
        p = {name: x.get(f"blocks.{layer.index}.{name}") for name in POINTS}
        norm = case.norm_dtype
        if v.family.placement == "pre":
            assert_close(p["pre"] + p["attn"], p["mid"])
            assert_close(p["mid"] + p["mlp"], p["post"])
            if layer.weights().norm is not None:
                assert_close(layer.weights().norm(p["pre"]), p["norm1"], norm)
        else:
            assert_close(p["pre"] + p["attn"], p["attn_sum"])
            assert_close(layer.weights().post_norm(p["attn_sum"]), p["mid"], norm)
            assert_close(p["mid"] + p["mlp"], p["mlp_sum"])
        if layer.index + 1 < len(v.layers):
            assert x[f"blocks.{layer.index + 1}.pre"] is p["post"]
    if "embed" in x:
        assert torch.equal(x["embed"], x["blocks.0.pre"])


POINTS = ("pre", "norm1", "attn", "attn_sum", "mid", "norm2", "mlp", "mlp_sum", "post")


@every_case()
def test_weights_and_maps_rebuild_the_attention(case: Case) -> None:
    check_attention(view(case.model(torch.float64)), case.inputs(torch.float64))
