"""Families with less than all: mixed heads, no matrices, no attention that is a sum over heads."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from model_cases import Case, D, _timm, every_case
from model_cases.decoders import DIFF_LLAMA
from model_cases.encoders import WITHOUT_MAPS
from torch import Tensor

from unsmooth.analysis import explain
from unsmooth.errors import WeightsError
from unsmooth.models import ModelView, capture_attention, check_attention, hook_points, view
from unsmooth.models.forward import call

CAIT = Case("timm-cait", "timm-cait", _timm("cait_xxs24_224", init_values=0.1), lambda: torch.randn(2, 3, 16, 16))


def trace(v: ModelView, batch: Any) -> dict[str, Tensor]:
    """All points of one forward pass."""
    seen: dict[str, Tensor] = {}
    with torch.no_grad(), hook_points(v, v.points, seen.__setitem__):
        call(v.model, batch)
    return seen


@every_case([CAIT, *WITHOUT_MAPS, DIFF_LLAMA])
def test_the_stream_is_measured_all_the_same(case: Case) -> None:
    v = view(case.model(torch.float64))
    assert (v.family.name, v.width, len(v.layers), v.prefix_tokens) == (case.family, D, case.layers, 0)
    x = trace(v, case.inputs(torch.float64))
    assert set(x) == set(v.points)
    for i in range(case.layers):
        p = {name.rpartition(".")[2]: t for name, t in x.items() if name.startswith(f"blocks.{i}.")}
        after_attention, after_mlp = ("mid", "post") if v.family.placement == "pre" else ("attn_sum", "mlp_sum")
        torch.testing.assert_close(p["pre"] + p["attn"], p[after_attention])
        torch.testing.assert_close(p["mid"] + p["mlp"], p[after_mlp])
    assert torch.equal(x["embed"], x["blocks.0.pre"])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_talking_heads_are_rebuilt_exactly(dtype: torch.dtype) -> None:
    check_attention(view(CAIT.model(dtype)), CAIT.inputs(dtype))


def test_matrices_of_talking_heads_are_those_after_both_maps_across_heads() -> None:
    model: Any = CAIT.model(torch.float64)
    v = view(model)
    maps: dict[int, Tensor] = {}
    with torch.no_grad(), capture_attention(v, maps.__setitem__):
        x = trace(v, CAIT.inputs(torch.float64))
    for i, block in enumerate(model.blocks):
        attn, normed = block.attn, x[f"blocks.{i}.norm1"]
        q, k, value = attn.qkv(normed).unflatten(-1, (3, attn.num_heads, -1)).unbind(2)
        scores = torch.einsum("bqhc,bkhc->bqkh", q, k) * attn.scale
        mixed = torch.einsum("bqkh,gh->bqkg", scores, attn.proj_l.weight) + attn.proj_l.bias
        a = torch.einsum("bqkh,gh->bqkg", mixed.softmax(2), attn.proj_w.weight) + attn.proj_w.bias
        torch.testing.assert_close(maps[i], a.permute(0, 3, 1, 2))
        out = torch.einsum("bqkh,bkhc->bqhc", a, value).flatten(2)
        torch.testing.assert_close(x[f"blocks.{i}.attn"], block.gamma_1 * attn.proj(out))


def test_talking_heads_are_not_explained() -> None:
    with pytest.raises(
        WeightsError, match=r"rows must sum to 1 .* because of attn\.proj_w: .* measured, not explained"
    ):
        explain(CAIT.model(), [CAIT.inputs()])


@every_case(WITHOUT_MAPS)
def test_a_mean_over_heads_is_not_taken_for_matrices(case: Case) -> None:
    v = view(case.model())
    w = v.layers[0].weights()
    value = v.layers[0].attention.get_parameter("v_proj.weight")
    assert torch.equal(w.w_v[1], value.unflatten(0, (v.layers[0].heads, -1))[1].t())
    with pytest.raises(WeightsError, match="'hf-wavlm.*' gives no attention matrices: its row has no Maps"):
        explain(case.model(), [case.inputs()])


def test_heads_that_are_subtracted_are_not_explained() -> None:
    with pytest.raises(WeightsError, match="'hf-diffllama' gives no attention weights or matrices"):
        explain(DIFF_LLAMA.model(), [DIFF_LLAMA.inputs()])


def test_an_attention_that_was_made_fused_says_how_to_see_its_matrices() -> None:
    from model_cases import VISION, hf, pixels

    v = view(hf("Data2VecVision", **VISION)())
    assert v.family.name == "hf-data2vec-vision-fused"
    with pytest.raises(WeightsError, match="when loaded with attn_implementation='eager'"):
        check_attention(v, pixels())


def test_aria_is_measured_and_checked_though_its_experts_know_no_float64() -> None:
    from model_cases import DECODER, hf, padded

    v = view(hf("AriaText", moe_num_experts=4, moe_topk=2, head_dim=8, **DECODER)().eval())
    assert (v.family.name, v.causal, v.layers[0].kv_heads) == ("hf-llama", True, 2)
    assert check_attention(v, padded()) < 1e-5
    x = trace(v, padded())
    for i in range(len(v.layers)):
        pre, attn, mid, mlp, post = (x[f"blocks.{i}.{name}"] for name in ("pre", "attn", "mid", "mlp", "post"))
        torch.testing.assert_close(pre + attn, mid)
        torch.testing.assert_close(mid + mlp, post)
