"""Attention that cannot be rebuilt says why; rows that see nothing and weights that are zero are no errors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from model_cases import CASES, HEADS, LAYERS, TOKENS, VOCAB, Case, D, _encoder, hf, padded
from model_cases.decoders import SINK
from torch import Tensor, nn

from unsmooth.errors import PointError, UnknownModelError, WeightsError
from unsmooth.models import Maps, ModelView, capture_attention, check_attention, hook_points, into, out, view
from unsmooth.models.forward import call
from unsmooth.models.taps import Tap, find_spot, tensor_out

BY_NAME = {case.name: case for case in CASES}


def with_maps(name: str, maps: Maps) -> tuple[ModelView, Case]:
    """A view that takes its matrices from elsewhere."""
    case = BY_NAME[name]
    v = view(case.model())
    assert v.family.attention is not None
    family = replace(v.family, attention=replace(v.family.attention, maps=maps))
    return replace(v, family=family, layers=tuple(replace(layer, family=family) for layer in v.layers)), case


def test_the_error_is_the_largest_of_all_layers() -> None:
    case = BY_NAME["timm-vit"]
    exact, rounded = (check_attention(view(case.model(t)), case.inputs(t)) for t in (torch.float64, torch.float32))
    assert exact < 1e-14 < rounded
    model: Any = case.model()
    for block in model.blocks[1:]:
        block.attn.proj.weight.data.zero_()
        block.attn.proj.bias.data.zero_()
    first_only = check_attention(view(model), case.inputs())
    assert first_only > 0  # the last two layers are exact


def test_attention_that_is_zero_is_exact() -> None:
    case = BY_NAME["llama"]
    model: Any = case.model()
    for block in model.layers:
        block.self_attn.v_proj.weight.data.zero_()
    assert check_attention(view(model), case.inputs()) == 0.0


def test_xglm_is_checked_though_it_knows_no_float64() -> None:
    shapes = {"d_model": D, "num_layers": LAYERS, "attention_heads": HEADS, "ffn_dim": 2 * D, "vocab_size": VOCAB}
    v = view(hf("XGLM", **shapes)())
    assert (v.family.name, v.causal, v.width, len(v.layers)) == ("hf-xglm", True, D, LAYERS)
    assert check_attention(v, padded()) < 1e-5
    with_cross_attention = hf("XGLM", add_cross_attention=True, **shapes)()
    with pytest.raises(UnknownModelError, match="expected encoder_attn = None"):
        view(with_cross_attention)


def test_a_sequence_that_may_see_nothing_is_undefined_on_both_sides() -> None:
    model = _encoder(False, True)().eval()
    mask = torch.zeros(2, TOKENS, dtype=torch.bool)
    mask[1] = True
    maps: list[Tensor] = []
    batch = {"src": torch.randn(2, TOKENS, D), "src_key_padding_mask": mask}
    v = view(model)
    with capture_attention(v, lambda i, a: maps.append(a)):
        call(model, batch)
    assert maps[0][1].isnan().all()
    assert check_attention(v, batch) < 1e-5


def test_a_module_that_is_undefined_elsewhere_is_an_error() -> None:
    case = BY_NAME["timm-vit"]
    model: Any = case.model()

    def spoil(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        output[0, 0, 0] = float("nan")
        return output

    model.blocks[1].attn.register_forward_hook(spoil)
    with pytest.raises(WeightsError, match="layer 1: the attention's output and its reconstruction are NaN in diff"):
        check_attention(view(model), case.inputs())


def test_extra_keys_are_refused() -> None:
    model: Any = _encoder(True, True)().eval()
    for layer in model.layers:
        layer.self_attn.add_zero_attn = True
    with pytest.raises(WeightsError, match=r"\(2, 4, 7, 8\) does not fit its input of 7 tokens \(a cache, or extra"):
        check_attention(view(model), torch.randn(2, TOKENS, D))


def test_unbatched_features_cannot_be_checked() -> None:
    model = _encoder(True, True)().eval()
    with pytest.raises(WeightsError, match=r"expected attention features of shape .* got \(7, 32\)"):
        check_attention(view(model), torch.randn(TOKENS, D))


@pytest.mark.parametrize(
    ("maps", "message"),
    [
        (Maps(into("attn.softmax")), "layer 0 of family 'timm-vit' has nowhere to take its matrices from"),
        (Maps(out("norm1")), r"expected attention matrices of shape \(batch, 4 heads.* got \(2, 17, 32\)"),
        (Maps(out("norm1", item=1)), "got none"),
    ],
)
def test_matrices_that_are_not_there_are_an_error(maps: Maps, message: str) -> None:
    v, case = with_maps("timm-vit", maps)
    with pytest.raises(WeightsError, match=message), capture_attention(v, lambda i, a: None):
        call(v.model, case.inputs())


@pytest.mark.parametrize("layer", [-1, 3])
def test_layers_are_counted_from_zero_to_the_last(layer: int) -> None:
    with pytest.raises(WeightsError, match=f"expected layers 0 to 2 of timm-vit, got {layer}"):
        capture_attention(view(BY_NAME["timm-vit"].model()), print, layers=[layer]).__enter__()


def test_a_layer_without_an_output_projection_says_so() -> None:
    model: Any = BY_NAME["timm-vit"].model()
    layer = view(model).layers[1]
    model.blocks[1].attn.proj = nn.Identity()
    with pytest.raises(WeightsError, match="layer 1 of family 'timm-vit' has no output projection"):
        _ = layer.key_dim


def test_heads_that_do_not_divide_the_projections_are_refused() -> None:
    layer = view(BY_NAME["timm-vit"].model()).layers[0]
    layer.attention.num_heads = 5  # type: ignore[assignment]
    with pytest.raises(WeightsError, match=r"5 heads and 5 key-value heads do not divide .* \(32, 32\) and \(32, 32\)"):
        layer.weights()


def test_a_backbone_may_be_called_after_the_whole_model() -> None:
    case = BY_NAME["bert-mlm"]
    v = view(case.model())
    fired: list[str] = []
    with hook_points(v, ["embed"], lambda point, x: fired.append(point)):
        call(v.model, case.inputs())
        call(v.backbone, case.inputs())
        call(v.backbone, case.inputs())
    assert len(fired) == 3


def test_of_a_modules_outputs_only_tensors_are_taken() -> None:
    x, y = torch.ones(1), torch.zeros(1)
    assert tensor_out((x, y), 1) is y
    assert tensor_out(x, 0) is x
    for output, item in ((x, 1), ((x,), 1), ((x, None), 1), (None, 0), ({"x": x}, 0)):
        assert tensor_out(output, item) is None
    assert out("x") == Tap("x")
    assert into("x") == Tap("x", "in")


def test_a_tap_needs_a_module_not_a_number_of_that_name() -> None:
    """Some releases keep a dropout's rate where others keep the dropout."""
    block = nn.Sequential(nn.Dropout(0.1))
    assert find_spot(block, out("0.p")) is None
    spot = find_spot(block, (out("0.p"), out("0")))
    assert spot is not None
    assert spot.module is block[0]


def test_a_point_at_which_no_tensor_passes_is_an_error() -> None:
    case = BY_NAME["timm-vit"]
    v = view(case.model())
    family = replace(v.family, points={**v.family.points, "attn": out("attn", item=1)})
    odd = replace(v, family=family, layers=tuple(replace(layer, family=family) for layer in v.layers))
    with (
        pytest.raises(PointError, match=r"'blocks\.2\.attn': expected features of shape .* got no tensor"),
        hook_points(odd, ["blocks.2.attn"], lambda point, x: None),
    ):
        call(odd.model, case.inputs())


def test_a_row_that_does_not_name_its_sinks_is_refused() -> None:
    """The reconstruction holds with sinks too, so a row that is silent on them would be explained by A·1 = 1."""
    v = SINK.seen()
    check_attention(v, SINK.inputs())
    row = v.family.like("silent", attention={"sink": ()})
    silent = replace(v, family=row, layers=tuple(replace(layer, family=row) for layer in v.layers))
    with pytest.raises(WeightsError, match=r"rows of its attention matrices sum to 1 ± .*AttentionRow\(sink="):
        check_attention(silent, SINK.inputs())
