"""Explaining models in half precision, with torch's masks, and with the token axis first."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from model_cases import CASES, TOKENS, Case, D, _encoder

from unsmooth.analysis import explain, measure
from unsmooth.errors import FeatureError
from unsmooth.theory.stochastic import widened

BY_NAME = {case.name: case for case in CASES}
CHOSEN = [BY_NAME[name] for name in ("timm-vit", "bert-padded", "llama-lm", "gemma2", "t5")]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("case", CHOSEN, ids=lambda case: case.name)
def test_half_precision_models_are_explained_like_wide_ones(case: Case, dtype: torch.dtype) -> None:
    half = explain(case.model(dtype), [case.inputs(dtype)])
    model = case.model(dtype).float()  # the same rounded weights
    wide = explain(model, [case.inputs(dtype) if isinstance(case.inputs(), dict) else case.inputs(dtype).float()])
    for a, b in zip(half.layers, wide.layers, strict=True):
        assert a["measured_hfc"] == pytest.approx(b["measured_hfc"], abs=0.1)
        assert a["frozen_hfc"] == pytest.approx(a["measured_hfc"], abs=0.1)


def test_rows_of_a_half_precision_softmax_sum_to_one_again() -> None:
    a = torch.randn(2, 4, 9, 9).softmax(-1)
    assert widened(a) is a
    rows = widened(a.bfloat16())
    assert rows.dtype == torch.float32
    assert torch.allclose(rows.sum(-1), torch.ones(2, 4, 9), atol=1e-6)


def _tokens_first(batch: dict[str, Any]) -> dict[str, Any]:
    return {**batch, "src": batch["src"].transpose(0, 1)}


@pytest.mark.parametrize("norm_first", [True, False])
def test_torchs_encoder_gives_the_same_with_tokens_first_and_leaves_padding_out(norm_first: bool) -> None:
    torch.manual_seed(0)
    mask = torch.zeros(2, TOKENS, dtype=torch.bool)
    mask[1, 4:] = True
    batch = {"src": torch.randn(2, TOKENS, D), "src_key_padding_mask": mask}
    model = _encoder(norm_first, True)()
    other = _encoder(norm_first, False)()
    other.load_state_dict(model.state_dict())
    first, second = explain(model, [batch]), explain(other, [_tokens_first(batch)])
    assert [row["tokens"] for row in first.layers[:2]] == [TOKENS, 4]
    short = explain(model, [{"src": batch["src"][1:, :4]}])  # the padded input without its padding
    for a, b in zip(first.layers, second.layers, strict=True):
        assert a["measured_ratio"] == pytest.approx(b["measured_ratio"], abs=1e-4)
    for a, b in zip([row for row in first.layers if row["input"] == 1], short.layers, strict=True):
        assert a["measured_ratio"] == pytest.approx(b["measured_ratio"], abs=1e-4)
    content = measure(model, [{"src": batch["src"][1:], "src_key_padding_mask": mask[1:]}], tokens="content")
    alone = measure(model, [{"src": batch["src"][1:, :4]}])
    assert content.frame()["mean"].tolist() == pytest.approx(alone.frame()["mean"].tolist(), abs=1e-4)


def test_a_causal_mask_of_torchs_encoder_is_no_batch() -> None:
    mask = torch.nn.Transformer.generate_square_subsequent_mask(TOKENS)
    found = explain(_encoder(True, True)(), [{"src": torch.randn(2, TOKENS, D), "mask": mask}])
    assert {row["input"] for row in found.layers} == {0, 1}


def test_a_mask_over_other_positions_than_the_tokens_is_refused() -> None:
    case = BY_NAME["moonshine"]  # whose rule from samples to tokens is for one length
    mask = torch.ones(2, 4000, dtype=torch.long)
    mask[1, 3000:] = 0
    with pytest.raises(FeatureError, match=r"describe \(2, 4000\) .* one length, without a mask"):
        explain(case.model(), [{**case.inputs(), "attention_mask": mask}])


def test_padded_patches_of_pictures_of_several_shapes_count_nowhere() -> None:
    model = BY_NAME["timm-naflexvit"].model()
    coordinates = torch.cartesian_prod(torch.arange(2), torch.arange(3)).expand(2, -1, -1)
    valid = torch.arange(6) < torch.tensor([[6], [4]])
    patches = torch.randn(2, 6, 48)

    def batch(fill: float) -> tuple[dict[str, torch.Tensor], torch.Tensor]:  # as timm's loader gives it
        filled = patches.masked_fill(~valid[..., None], fill)
        return {"patches": filled, "patch_coord": coordinates, "patch_valid": valid}, torch.zeros(2)

    one, other = (measure(model, [batch(fill)], tokens="content", points="residual") for fill in (0.0, 50.0))
    assert one.frame()["mean"].tolist() == pytest.approx(other.frame()["mean"].tolist(), rel=1e-4)
    one, other = (explain(model, [batch(fill)]) for fill in (0.0, 50.0))
    for a, b in zip(one.layers, other.layers, strict=True):
        assert a["measured_hfc"] == pytest.approx(b["measured_hfc"], abs=1e-4)
    with pytest.warns(UserWarning, match="hold padding, which tokens='all' and tokens='patches' count as tokens"):
        measure(model, [batch(0.0)], tokens=["all", "patches"], points="embed")


@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
def test_queries_that_see_nothing_are_left_out_in_float64_too(kernel: str) -> None:
    """Padding on the left: Hugging Face's float64 mask is −∞ in its float32 softmax, and those rows NaN."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=50, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=32
    )
    config._attn_implementation = kernel
    model = transformers.LlamaModel(config).double()
    ids, mask = torch.randint(3, 50, (2, 9)), torch.ones(2, 9, dtype=torch.long)
    mask[1, :3] = 0
    padded = explain(model, [{"input_ids": ids, "attention_mask": mask}])
    alone = explain(model, [{"input_ids": ids[1:, 3:]}])
    found = [row for row in padded.layers if row["input"] == 1]
    for a, b in zip(found, alone.layers, strict=True):
        assert a["tokens"] == b["tokens"] == 6
        for name in ("measured_ratio", "frozen_ratio", "exponent"):
            assert a[name] == pytest.approx(b[name], abs=1e-2 if name == "exponent" else 1e-6)
