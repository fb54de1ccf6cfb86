"""Per-head weights: orientation, layouts, gradients, writing back, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from model_cases import CASES, _timm
from torch import Tensor, nn
from torch.nn.utils import parametrize

from unsmooth.errors import WeightsError
from unsmooth.models import Norm, view

BY_NAME = {case.name: case for case in CASES}


def test_value_and_projection_are_in_the_papers_orientation() -> None:
    """Row vectors: a head's value is x W_V^h, its output is value W_proj^h."""
    layer = view(BY_NAME["timm-vit"].model()).layers[1]
    attention: Any = layer.attention
    w, x = layer.weights(), torch.randn(5, 32)
    value = attention.qkv(x).reshape(5, 3, 4, 8)[:, 2]
    assert torch.allclose(torch.einsum("nd,hdk->nhk", x, w.w_v) + w.b_v, value, atol=1e-5)
    projected = torch.einsum("nhk,hkd->nd", value, w.w_proj) + w.b_proj
    assert torch.allclose(projected, attention.proj(value.flatten(1)), atol=1e-5)


def test_grouped_queries_are_expanded_in_order() -> None:
    layer = view(BY_NAME["llama"].model()).layers[0]
    w = layer.weights()
    assert (layer.heads, layer.kv_heads, layer.key_dim) == (4, 2, 8)
    assert torch.equal(w.w_v[0], w.w_v[1])
    assert torch.equal(w.w_v[2], w.w_v[3])
    assert not torch.equal(w.w_v[1], w.w_v[2])
    assert w.b_v is None


def test_gemmas_norm_weight_is_one_plus_its_parameter() -> None:
    layer = view(BY_NAME["gemma2"].model()).layers[0]
    w, block = layer.weights(), layer.block
    assert (layer.key_dim, layer.width) == (12, 32)
    assert torch.equal(w.norm.weight, 1 + block.input_layernorm.weight)
    assert torch.equal(w.out_norm.weight, 1 + block.post_attention_layernorm.weight)
    assert w.norm.kind == "rms"


def test_layer_scale_is_given() -> None:
    assert view(BY_NAME["timm-vit"].model()).layers[0].weights().out_scale is None
    for name in ("timm-deit3", "hf-dinov2"):
        assert view(BY_NAME[name].model()).layers[0].weights().out_scale.shape == (32,)


def test_weights_are_differentiable() -> None:
    layer = view(BY_NAME["gpt2"].model()).layers[0]
    w = layer.weights()
    (w.w_v.sum() + w.w_proj.square().sum() + w.b_v.sum()).backward()
    gradient = layer.attention.c_attn.weight.grad
    assert torch.equal(gradient[:, :64], torch.zeros(32, 64))
    assert torch.equal(gradient[:, 64:], torch.ones(32, 32))


@pytest.mark.parametrize("name", ["timm-vit", "timm-eva02", "bert", "gpt2", "torch-pre", "torchvision-vit", "albert"])
def test_written_weights_are_read_back_and_biases_stay(name: str) -> None:
    layer = view(BY_NAME[name].model()).layers[0]
    old = layer.weights()
    w_v, w_proj = torch.randn(4, 32, 8), torch.randn(4, 8, 32)
    b_v = None if old.b_v is None else old.b_v.clone()
    b_proj = None if old.b_proj is None else old.b_proj.clone()
    layer.write(w_v, w_proj)
    new = layer.weights()
    assert torch.equal(new.w_v, w_v)
    assert torch.equal(new.w_proj, w_proj)
    assert b_v is None or torch.equal(new.b_v, b_v)
    assert b_proj is None or torch.equal(new.b_proj, b_proj)


def test_writing_leaves_query_and_key_alone() -> None:
    layer = view(BY_NAME["timm-vit"].model()).layers[0]
    before = layer.attention.qkv.weight.detach().clone()
    layer.write(torch.zeros(4, 32, 8), torch.zeros(4, 8, 32))
    assert torch.equal(layer.attention.qkv.weight[:64], before[:64])
    assert not layer.attention.qkv.weight[64:].any()


def test_writing_goes_through_a_parametrisation() -> None:
    class Doubled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * x

        def right_inverse(self, x: Tensor) -> Tensor:
            return x / 2

    model = BY_NAME["bert"].model()
    layer = view(model).layers[0]
    parametrize.register_parametrization(layer.attention.value, "weight", Doubled())
    w = torch.randn(4, 32, 8)
    layer.write(w, layer.weights().w_proj)
    assert torch.allclose(layer.weights().w_v, w)
    assert view(model).family.name == "hf-bert"


def test_grouped_queries_cannot_be_written() -> None:
    layer = view(BY_NAME["llama"].model()).layers[2]
    w = layer.weights()
    with pytest.raises(WeightsError, match="layer 2: its 4 query heads share 2 value heads"):
        layer.write(w.w_v, w.w_proj)


def test_weights_of_another_shape_are_refused() -> None:
    layer = view(BY_NAME["timm-vit"].model()).layers[0]
    with pytest.raises(WeightsError, match=r"expected W_V of shape \(4, 32, 8\).*got \(4, 8, 32\)"):
        layer.write(torch.zeros(4, 8, 32), torch.zeros(4, 8, 32))


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"scale_attn_norm": True}, r"attn\.norm \(LayerNorm\)"),
        ({"attn_layer": "diff"}, r"attn\.sub_norm \(RmsNorm\)"),
    ],
)
def test_attention_that_is_no_sum_over_heads_gives_no_weights(options: dict[str, Any], what: str) -> None:
    from timm.models import vision_transformer

    if "attn_layer" in options and not hasattr(vision_transformer, "DiffAttention"):
        pytest.skip("this timm has no differential attention")
    layer = view(_timm(**options)()).layers[0]
    with pytest.raises(
        WeightsError, match=rf"family 'timm-vit': {what} stands between the attention's input and W_proj"
    ):
        layer.weights()


def test_an_unknown_normalisation_is_refused() -> None:
    model = BY_NAME["timm-vit"].model()
    model.blocks[0].norm1 = nn.GroupNorm(1, 32)  # type: ignore[index, union-attr]
    with pytest.raises(WeightsError, match="GroupNorm is neither a LayerNorm nor an RMSNorm"):
        view(model).layers[0].weights()


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_norm_is_torchs(kind: Any) -> None:
    x, weight, bias = torch.randn(3, 8), torch.randn(8), torch.randn(8)
    if kind == "layer":
        expected = nn.functional.layer_norm(x, (8,), weight, bias, 1e-3)
    else:
        expected = nn.functional.rms_norm(x, (8,), weight, 1e-3) + bias
    assert torch.allclose(Norm(kind, weight, bias, 1e-3)(x), expected, atol=1e-6)


def test_a_layer_norm_that_leaves_the_mean_is_an_rms_norm() -> None:
    norm = view(BY_NAME["t5"].model()).layers[0].weights().norm
    assert norm is not None
    assert norm.kind == "rms"


def test_a_norm_that_hides_its_epsilon_is_refused() -> None:
    class LayerNorm(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.layer_norm(x, x.shape[-1:], eps=0.1)

    model = BY_NAME["timm-vit"].model()
    model.blocks[0].norm1 = LayerNorm()  # type: ignore[index, union-attr]
    with pytest.raises(WeightsError, match="LayerNorm does not say its epsilon"):
        view(model).layers[0].weights()


def test_a_layer_scale_that_is_the_number_one_is_none() -> None:
    assert view(BY_NAME["hf-beit-no-scale"].model()).layers[0].weights().out_scale is None


def test_torchs_rms_norm_without_eps_takes_the_dtypes() -> None:
    model = BY_NAME["timm-vit"].model()
    model.blocks[0].norm1 = nn.RMSNorm(32)  # type: ignore[index, union-attr]
    norm = view(model).layers[0].weights().norm
    assert norm is not None
    assert norm.eps == torch.finfo(torch.float32).eps


def test_quantised_weights_are_refused() -> None:
    layer = view(BY_NAME["bert"].model()).layers[0]
    layer.attention.value.weight = nn.Parameter(torch.zeros(512, 1, dtype=torch.uint8), requires_grad=False)
    with pytest.raises(WeightsError, match="is quantised, and its Linear does not run .* load the model without"):
        layer.weights()
