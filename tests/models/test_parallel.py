"""Parallel residuals: which points there are, that none is aliased, and where matrices cannot be had."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from model_cases import CASES, DECODER, hf
from model_cases.decoders import FALCON_RW
from torch import Tensor

from unsmooth.errors import OptionError, PointError, WeightsError
from unsmooth.models import Family, capture_attention, check_attention, families, hook_points, out, select_points, view
from unsmooth.models.forward import call

BY_NAME = {case.name: case for case in CASES}
_PLACEMENTS = {family.name: family.placement for family in families()}
PARALLEL = [case for case in CASES if _PLACEMENTS[case.family].startswith("parallel")]


def test_every_library_with_parallel_blocks_is_here() -> None:
    assert {case.family for case in PARALLEL} >= {
        "hf-gpt-neox", "hf-gptj", "hf-codegen", "hf-phi", "hf-cohere", "hf-stablelm-parallel", "hf-falcon",
        "hf-falcon-two-norms", "timm-vit-parallel",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "points"),
    [
        ("gpt-neox", ("pre", "norm1", "attn", "norm2", "mlp", "post")),
        ("gpt-neox-sequential", ("pre", "norm1", "attn", "mid", "norm2", "mlp", "post")),
        ("phi", ("pre", "norm1", "attn", "mlp", "post")),
        ("falcon-40b", ("pre", "norm1", "attn", "norm2", "mlp", "post")),
        ("falcon-11b", ("pre", "norm1", "attn", "mlp", "post")),
        ("timm-parallel", ("pre", "norm1", "attn", "mlp", "post")),
    ],
)
def test_a_parallel_block_has_no_mid_and_a_second_norm_only_where_there_is_one(
    name: str, points: tuple[str, ...]
) -> None:
    v = view(BY_NAME[name].model())
    assert tuple(p.rpartition(".")[2] for p in v.points if p.startswith("blocks.1.")) == points
    if "mid" not in points:
        stream = {p.rpartition(".")[2] for p in select_points(v, "residual")}
        assert stream == {"embed", "post"}
        with pytest.raises(PointError, match=r"has no point 'blocks\.0\.mid'"):
            select_points(v, "blocks.0.mid")


@pytest.mark.parametrize("case", PARALLEL, ids=lambda case: case.name)
def test_attention_and_mlp_read_the_block_input_not_each_other(case: Any) -> None:
    """Without its attention's output the MLP adds the same; in a sequential block it would not."""
    v = view(case.model(torch.float64))
    inputs = case.inputs(torch.float64)

    def added() -> dict[str, Tensor]:
        seen: dict[str, Tensor] = {}
        with torch.no_grad(), hook_points(v, ["blocks.0.attn", "blocks.0.mlp"], seen.__setitem__):
            call(v.model, inputs)
        return {name: x.clone() for name, x in seen.items()}

    before = added()
    w = v.layers[0].weights()
    with torch.no_grad():
        w.w_proj.zero_()  # a view of the parameter
    after = added()
    assert not torch.allclose(before["blocks.0.attn"], after["blocks.0.attn"])
    assert torch.equal(before["blocks.0.mlp"], after["blocks.0.mlp"])


def test_what_the_mlp_adds_is_not_what_falcon_writes_into_it_later() -> None:
    case = BY_NAME["falcon-7b"]
    v = view(case.model())
    kept: list[Tensor] = []
    values: list[Tensor] = []

    def keep(point: str, x: Tensor) -> None:
        kept.append(x)
        values.append(x.clone())

    with torch.no_grad(), hook_points(v, ["blocks.0.mlp"], keep):
        call(v.model, case.inputs())
    assert torch.equal(kept[0], values[0])


def test_branches_behind_a_functional_dropout_are_refused_in_training_mode() -> None:
    case = BY_NAME["falcon-7b"]
    v = view(case.model().train())
    with pytest.raises(PointError, match="is not what hf-falcon adds to its stream in training mode"):
        hook_points(v, ["blocks.0.attn"], print).__enter__()


def test_alibi_falcon_is_measured_but_shows_matrices_only_where_they_are_its_own() -> None:
    case = BY_NAME["falcon-rw"]
    model = hf("Falcon", attn_implementation="sdpa", **FALCON_RW)().eval()
    v = view(model)
    seen: dict[str, Tensor] = {}
    with torch.no_grad(), hook_points(v, v.points, seen.__setitem__):
        call(model, case.inputs())
    assert set(seen) == set(v.points)
    with pytest.raises(WeightsError, match="got none: .* when loaded with attn_implementation='eager'"):
        check_attention(v, case.inputs())
    with pytest.raises(WeightsError, match="got none"), capture_attention(v, lambda i, a: None):
        call(model, case.inputs())


def test_a_clipped_value_is_no_longer_linear() -> None:
    model = hf("Mpt", n_layers=1, d_model=32, n_heads=4, vocab_size=50, attn_config={"clip_qkv": 0.5})()
    with pytest.raises(WeightsError, match=r"attn\.clip_qkv \(float\) stands between"):
        view(model).layers[0].weights()
    model = hf("Olmo", clip_qkv=0.5, **DECODER)()
    with pytest.raises(WeightsError, match=r"self_attn\.config\.clip_qkv \(float\) stands between"):
        view(model).layers[0].weights()


def test_a_parallel_row_with_a_mid_is_refused() -> None:
    with pytest.raises(OptionError, match=r"unknown point of a parallel block 'mid'"):
        Family("bad", ("torch.Linear",), "blocks", placement="parallel", points={"mid": out("x")})
