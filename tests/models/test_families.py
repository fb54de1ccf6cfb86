"""Every family: residual identities, point firing, weights, attention matrices."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from model_cases import BATCH, CASES, Case, D, every_case
from model_cases.decoders import MEASURED_CASES
from torch import Tensor

from unsmooth.errors import WeightsError
from unsmooth.metrics.tolerance import tolerance
from unsmooth.models import ModelView, capture_attention, check_attention, hook_points, view
from unsmooth.models.forward import call

POINTS = ("pre", "norm1", "attn", "attn_sum", "mid", "norm2", "mlp", "mlp_sum", "post")


def trace(v: ModelView, batch: Any) -> dict[str, Tensor]:
    """All points of one forward pass."""
    seen: dict[str, Tensor] = {}

    def keep(point: str, x: Tensor) -> None:
        assert point not in seen
        seen[point] = x

    with torch.no_grad(), hook_points(v, v.points, keep):
        call(v.model, batch)
    return seen


def assert_close(a: Tensor, b: Tensor, dtype: torch.dtype | None = None) -> None:
    allowed = tolerance(dtype or a.dtype, 1) * max(float(b.abs().max()), 1.0)
    assert float((a - b).detach().abs().max()) <= allowed


@every_case()
def test_view_says_what_the_model_is(case: Case) -> None:
    v = case.seen()
    assert v.family.name == case.family
    assert v.prefix_tokens == case.prefix
    assert v.causal == case.causal
    assert v.width == D
    assert [layer.index for layer in v.layers] == list(range(case.layers))


@every_case()
def test_residual_identities_hold(case: Case) -> None:
    v = case.seen(torch.float64)
    x = trace(v, case.inputs(torch.float64))
    assert set(x) == set(v.points)
    assert all(t.shape[0] == BATCH and t.shape[2] == v.width for t in x.values())
    for layer in v.layers:
        p = {name: x.get(f"blocks.{layer.index}.{name}") for name in POINTS}
        weights = layer.weights()
        if v.family.placement != "post":
            if v.family.placement == "pre":
                assert_close(p["pre"] + p["attn"], p["mid"])
                assert_close(p["mid"] + p["mlp"], p["post"])
            else:
                assert p["mid"] is None
                assert (p["norm2"] is None) == (v.family.placement == "parallel-shared")
                assert_close(p["pre"] + p["attn"] + p["mlp"], p["post"])
            assert (p["norm1"] is None) == (weights.norm is None)
            if weights.norm is not None:
                assert_close(weights.norm(p["pre"]), p["norm1"], case.norm_dtype)
        else:
            assert p["norm1"] is None
            assert_close(p["pre"] + p["attn"], p["attn_sum"])
            assert_close(weights.post_norm(p["attn_sum"]), p["mid"], case.norm_dtype)
            assert_close(p["mid"] + p["mlp"], p["mlp_sum"])
        if layer.index + 1 < len(v.layers):
            assert x[f"blocks.{layer.index + 1}.pre"] is p["post"]
    if "embed" in x:
        assert torch.equal(x["embed"], x["blocks.0.pre"])


@every_case()
def test_points_come_in_the_order_of_the_forward_pass(case: Case) -> None:
    v = case.seen()
    fired = list(trace(v, case.inputs()))
    # One tensor under two names may come under either first: mid is norm2's input, pre the block's.
    assert sorted(fired, key=v.points.index) == list(v.points)
    stream = [p for p in fired if p.rpartition(".")[2] in ("pre", "mid", "post", "embed", "final_norm")]
    assert stream == [p for p in v.points if p in stream]


@every_case()
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_weights_and_maps_rebuild_the_attention(case: Case, dtype: torch.dtype) -> None:
    error = check_attention(case.seen(dtype), case.inputs(dtype))
    assert error <= tolerance(dtype, 1)


@every_case()
def test_attention_as_added_is_the_heads_then_norm_then_scale(case: Case) -> None:
    """`attn` is Σ A_h (X W_V + b) W_proj + b, after Gemma's output norm and after LayerScale."""
    from unsmooth.models.reconstruction import attend

    v = case.seen(torch.float64)
    maps: dict[int, Tensor] = {}
    with capture_attention(v, maps.__setitem__):
        x = trace(v, case.inputs(torch.float64))
    for layer in v.layers:
        w = layer.weights()
        pre = x[f"blocks.{layer.index}.pre"]
        y = attend(pre if w.norm is None else w.norm(pre), maps[layer.index], w)
        y = y if w.out_norm is None else w.out_norm(y)
        y = y if w.out_scale is None else y * w.out_scale
        assert_close(y, x[f"blocks.{layer.index}.attn"], case.norm_dtype)


@every_case(MEASURED_CASES)
def test_families_without_weights_have_points_all_the_same(case: Case) -> None:
    v = view(case.model(torch.float64))
    x = trace(v, case.inputs(torch.float64))
    assert v.family.name == case.family
    assert set(x) == set(v.points)
    for i in range(case.layers):
        p = {name: x.get(f"blocks.{i}.{name}") for name in POINTS}
        assert_close(p["pre"] + p["attn"], p["mid"])
        assert_close(p["mid"] + p["mlp"], p["post"])
    with pytest.raises(WeightsError, match="stands between the attention's input and W_proj"):
        v.layers[0].weights()


@every_case([*CASES, *MEASURED_CASES])
def test_matrices_are_row_stochastic_and_leave_the_outputs_alone(case: Case) -> None:
    v = case.seen()
    plain = trace(v, case.inputs())
    maps: dict[int, Tensor] = {}
    with capture_attention(v, maps.__setitem__):
        captured = trace(v, case.inputs())
    assert sorted(maps) == list(range(len(v.layers)))
    for a in maps.values():
        assert a.shape[:2] == (BATCH, v.layers[0].heads)
        assert (a >= 0).all()
        assert torch.allclose(a.sum(-1), torch.ones_like(a.sum(-1)), atol=1e-5) or case.sink
        assert (a.sum(-1) <= 1 + 1e-5).all()
        if v.causal:
            assert (a.triu(1) == 0).all()
    last = v.points[-1]
    assert torch.allclose(plain[last], captured[last], atol=1e-4)


@every_case()
def test_writing_the_weights_back_changes_nothing(case: Case) -> None:
    v = case.seen()
    before = {name: p.clone() for name, p in v.model.state_dict().items()}
    for layer in v.layers:
        if layer.kv_heads == layer.heads:
            w = layer.weights()
            layer.write(w.w_v, w.w_proj)
    assert all(torch.equal(before[name], p) for name, p in v.model.state_dict().items())
