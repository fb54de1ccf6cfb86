"""Rows of fused weights: unequal parts, parts that stand head by head, and what they leave alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from model_cases import CASES
from torch import Tensor

from unsmooth.errors import WeightsError
from unsmooth.models import LayerView, Slot, view
from unsmooth.models.fused_rows import Rows, rows_of

BY_NAME = {case.name: case for case in CASES}


def first_layer(name: str) -> LayerView:
    return view(BY_NAME[name].model()).layers[0]


@settings(deadline=None, max_examples=50)
@given(groups=st.integers(1, 4), before=st.integers(0, 3), own=st.integers(1, 3), after=st.integers(0, 3))
def test_rows_and_the_rest_make_the_whole(groups: int, before: int, own: int, after: int) -> None:
    rows, each = Rows(groups, before, before + own), before + own + after
    whole = torch.randn(groups * each, 2)
    expected = [g * each + i for g in range(groups) for i in range(before, before + own)]
    assert torch.equal(rows.read(whole), whole[expected])
    assert torch.equal(rows.join(rows.read(whole), rows.rest(whole)), whole)
    changed = whole.clone()
    rows.write(changed, torch.zeros(groups * own, 2))
    assert not rows.read(changed).any()
    assert torch.equal(rows.rest(changed), rows.rest(whole))


def fused_values(name: str, attention: Any, x: Tensor) -> Tensor:
    """Each value head's features (token, head, key) as Hugging Face's own code takes them from its fused output."""
    if name == "gpt-neox":
        return attention.query_key_value(x).view(len(x), 4, 24).chunk(3, -1)[2]
    if name.startswith("falcon"):
        values = attention._split_heads(attention.query_key_value(x)[None])[2][0]
        return values[:, :: 4 // attention.num_kv_heads] if values.shape[1] == 4 else values
    if name == "phi3":
        return attention.qkv_proj(x)[:, 48:].view(len(x), 2, 8)
    if name == "codegen":
        return attention.qkv_proj(x).view(len(x), 4, 3, 8)[:, :, 1]
    assert name == "gpt-bigcode"
    return attention.c_attn(x).split((32, 8, 8), -1)[2].view(len(x), 1, 8)


@pytest.mark.parametrize(
    ("name", "value_heads"),
    [("gpt-neox", 4), ("falcon-7b", 1), ("falcon-40b", 2), ("falcon-rw", 4), ("phi3", 2), ("codegen", 4),
     ("gpt-bigcode", 1)],
)  # fmt: skip
def test_values_are_those_that_the_module_splits_off(name: str, value_heads: int) -> None:
    layer = first_layer(name)
    w, x = layer.weights(), torch.randn(5, 32)
    assert layer.kv_heads == value_heads
    ours = torch.einsum("nd,hdk->nhk", x, w.w_v) + (0 if w.b_v is None else w.b_v)
    theirs = fused_values(name, layer.attention, x)
    assert torch.allclose(ours, theirs.repeat_interleave(4 // value_heads, 1), atol=1e-5)


@pytest.mark.parametrize("name", ["gpt-neox", "bloom", "codegen", "timm-parallel", "phi3-ungrouped", "deberta"])
def test_writing_a_fused_weight_leaves_its_other_rows_alone(name: str) -> None:
    layer = first_layer(name)
    before = {key: x.clone() for key, x in layer.block.state_dict().items()}
    doubled = 2 * layer.weights().w_v
    layer.write(doubled, layer.weights().w_proj)
    assert torch.equal(layer.weights().w_v, doubled)
    after = layer.block.state_dict()
    changed = {key for key, x in before.items() if not torch.equal(x, after[key])}
    assert len(changed) == 1
    (key,) = changed
    assert int((before[key] != after[key]).any(1).sum()) == 32  # four heads of eight features, of 96 rows or more
    assert len(before[key]) >= 96


def test_more_value_rows_than_there_are_is_an_error() -> None:
    layer = first_layer("phi3")
    with pytest.raises(WeightsError, match=r"64 rows at .*qkv_proj.weight are too few .* 2 value heads .* at part -5"):
        rows_of(layer, Slot("self_attn.qkv_proj", part=-5), 64)
    with pytest.raises(WeightsError, match="expected 5 equal groups of rows .* which has 64"):
        rows_of(layer, Slot("self_attn.qkv_proj", groups=5), 64)


def test_a_number_that_multiplies_a_branch_is_a_scale_of_all_features() -> None:
    scale = first_layer("granite").weights().out_scale
    assert scale is not None
    assert torch.equal(scale, torch.full((32,), 0.22))


def test_an_epsilon_that_no_module_tells_stands_in_the_row() -> None:
    layer = first_layer("olmo")
    norm = layer.weights().norm
    assert norm is not None
    assert (norm.kind, norm.eps, norm.weight) == ("layer", 1e-5, None)
    assert layer.family.attention is not None
    silent = replace(layer.family, attention=replace(layer.family.attention, norm_eps=None))
    with pytest.raises(WeightsError, match="OlmoLayerNorm does not say its epsilon"):
        replace(layer, family=silent).weights()
