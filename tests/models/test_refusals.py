"""Models refused by name: with the reason and the place, and under names that their libraries know."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import pytest
import torch
from model_cases import TEXT, hf
from torch import nn

from unsmooth.errors import UnknownModelError
from unsmooth.models import view
from unsmooth.models.families.refusals import REFUSED

NAMES = sorted({name for refused in REFUSED for name in refused.classes})
_INNER = {  # not among a library's own names
    "BartDecoder": "bart", "M2M100Decoder": "m2m_100", "MBartDecoder": "mbart", "MarianDecoder": "marian",
    "PegasusDecoder": "pegasus", "T5Stack": "t5", "WhisperDecoder": "whisper", "LEDEncoder": "led",
    "BigBirdPegasusEncoder": "bigbird_pegasus", "LongT5Stack": "longt5", "PegasusXEncoder": "pegasus_x",
}  # fmt: skip
_NEWER = {f"timm.{name}" for name in ("CPUBone", "CSATv2", "DiffParallelScalingBlock", "LowFormer")}  # than our oldest


@pytest.mark.parametrize("name", NAMES)
def test_a_refused_class_is_its_librarys(name: str) -> None:
    import timm  # noqa: F401
    import torchvision  # noqa: F401
    import transformers

    library, _, cls = name.partition(".")
    if library == "torch":
        assert hasattr(nn, cls)
        return
    if library == "transformers":
        kind = _INNER.get(cls)
        found = import_module(f"transformers.models.{kind}.modeling_{kind}") if kind else transformers
        assert hasattr(found, cls)
        return
    loaded: list[Any] = [module for path, module in list(sys.modules.items()) if path.startswith(f"{library}.models.")]
    assert any(cls in vars(module) for module in loaded) or name in _NEWER


@pytest.mark.parametrize("name", ["swin_tiny_patch4_window7_224", "mvitv2_tiny", "pvt_v2_b0", "hiera_tiny_224"])
def test_models_that_merge_tokens_are_refused_with_the_reason(name: str) -> None:
    import timm

    with torch.device("meta"):
        model = timm.create_model(name)
    with pytest.raises(UnknownModelError, match=rf"^{type(model).__name__} is not supported: .* merges tokens .*ViT"):
        view(model)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("crossvit_9_240", "carries two streams"),
        ("tnt_s_patch16_224", "carries two streams"),
        ("convit_tiny", "the number of tokens changes with depth"),
        ("xcit_nano_12_p8_224", "attends between features, not between tokens"),
        ("samvit_base_patch16", "attends within windows in most layers"),
        ("mixer_s16_224", "without attention"),
        ("volo_d1_224", "merges tokens"),
        ("maxvit_nano_rw_256", "merges tokens"),
    ],
)
def test_timms_other_models_are_refused_with_the_reason(name: str, reason: str) -> None:
    import timm

    with torch.device("meta"):
        model = timm.create_model(name)
    with pytest.raises(UnknownModelError, match=rf"^{type(model).__name__} is not supported: .*{reason}"):
        view(model)


@pytest.mark.parametrize("kind", ["BigBirdPegasus", "LED", "LongT5", "PegasusX"])
def test_an_encoder_that_is_taken_out_of_its_model_is_refused_like_the_model(kind: str) -> None:
    import transformers

    with torch.device("meta"):
        encoder = getattr(transformers, f"{kind}Model")(getattr(transformers, f"{kind}Config")()).get_encoder()
    with pytest.raises(UnknownModelError, match=rf"^{type(encoder).__name__} is not supported: .*attends within win"):
        view(encoder)


def test_a_merging_part_is_refused_with_its_place() -> None:
    swin = hf("Swin", embed_dim=8, depths=[1, 1], num_heads=[2, 2], image_size=16, patch_size=4, window_size=2)()
    with pytest.raises(UnknownModelError, match=r"Sequential is not supported: SwinModel \(at '0'\) merges tokens"):
        view(nn.Sequential(swin))


def test_values_that_are_turned_by_their_position_are_refused() -> None:
    model = hf("RoFormer", rotary_value=True, **TEXT)()
    with pytest.raises(
        UnknownModelError, match=r"found RoFormerLayer, expected .*attention\.self\.rotary_value = False"
    ):
        view(model)


_BY_REASON = [
    (
        "mixes its tokens without attention",
        "FNetModel MambaModel Mamba2Model FalconMambaModel PoolFormerModel RwkvModel",
    ),
    ("by a recurrence or a convolution", "BambaModel JambaModel Lfm2Model RecurrentGemmaModel ZambaModel"),
    ("approximates its attention and never forms the matrix", "MraModel NystromformerModel YosoModel"),
    ("within windows, blocks or buckets", "LEDModel LongT5Model LongformerModel PegasusXModel ReformerModel"),
    ("carries two streams", "LiltModel LukeModel LxmertModel XLNetModel"),
    ("multiplies the stream by learned weights", "DogeModel"),
    ("in lists of their own", "FlaubertModel XLMModel"),
    ("more than one attention and one MLP in a layer", "MobileBertModel XmodModel"),
    ("convolves beside its attention", "ConvBertModel"),
    ("projects by grouped convolutions", "SqueezeBertModel"),
    ("is a Conformer", "Wav2Vec2BertModel Wav2Vec2ConformerModel"),
    ("merges tokens", "CanineModel FunnelModel FunnelBaseModel LevitModel"),
    ("one after the other.*take VideoMAE or ViViT", "TimesformerModel"),
    ("attends within windows in most layers", "SamVisionModel VitDetModel"),
    ("pictures of a batch into one sequence", "PixtralVisionModel"),
    ("attention experts of its own", "JetMoeModel"),
    ("between its layers", "Qwen3VLTextModel"),
    ("several copies of the stream", "Gemma3nTextModel"),
]


@pytest.mark.parametrize(("reason", "name"), [(reason, name) for reason, names in _BY_REASON for name in names.split()])
def test_a_model_that_no_row_describes_is_refused_with_the_reason(reason: str, name: str) -> None:
    import transformers

    cls: Any = getattr(transformers, name)
    with torch.device("meta"):
        model = cls(cls.config_class())
    with pytest.raises(UnknownModelError, match=rf"^{name} is not supported: {name} .*{reason}"):
        view(model)


@pytest.mark.parametrize(
    ("name", "expected"), [("BigBird", "attention_type = original_full"), ("Yolos", "use_mid_pos")]
)
def test_a_variant_that_its_row_excludes_is_refused_with_the_condition(name: str, expected: str) -> None:
    import transformers

    with torch.device("meta"):
        model = getattr(transformers, f"{name}Model")(getattr(transformers, f"{name}Config")())
    with pytest.raises(UnknownModelError, match=rf"found {name}Layer, expected .*{expected}"):
        view(model)


def test_a_decoder_beside_an_encoder_is_refused_and_its_encoder_named() -> None:
    from transformers import BartConfig, BartForCausalLM, T5Config, T5Model

    layer = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)
    small = {"vocab_size": 10, "d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "decoder_ffn_dim": 8}
    bart = BartForCausalLM(BartConfig(**small, decoder_attention_heads=2, max_position_embeddings=16))
    t5 = T5Model(T5Config(vocab_size=10, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2))
    for model in (nn.TransformerDecoder(layer, 1), bart, t5.decoder):
        with pytest.raises(UnknownModelError, match=r"second attention in each layer.*take the encoder beside it"):
            view(model)
    assert view(t5).layers
