"""Small encoders that are less common: text, speech, and the vision encoders of larger models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from model_cases.builders import (
    _DEBERTA,
    _ENCODER_DECODER,
    _SPEECH,
    _T5,
    BATCH,
    F32,
    GEMMA_MIXED,
    HEADS,
    LAYERS,
    TEXT,
    TOKENS,
    VISION,
    VOCAB,
    Case,
    D,
    _waves,
    hf,
    ids,
    padded,
    pixels,
    scripted,
)


def _boxes() -> dict[str, Tensor]:
    return {**padded(), "bbox": torch.randint(0, 9, (BATCH, TOKENS, 4))}


def _text_and_pixels() -> dict[str, Tensor]:
    return {**padded(), **pixels()}


def _padded_waves() -> dict[str, Tensor]:
    mask = torch.ones(BATCH, 200, dtype=torch.long)
    mask[1, 120:] = 0
    return {**_waves(), "attention_mask": mask}


def _video(name: str = "pixel_values") -> Callable[[], dict[str, Tensor]]:
    return lambda: {name: torch.randn(BATCH, 4, 3, 16, 16)}


def _spectrum() -> dict[str, Tensor]:
    return {"input_features": torch.randn(BATCH, 6, 2 * TOKENS)}


def _speech_to_text() -> dict[str, Tensor]:
    mask = torch.ones(BATCH, 28, dtype=torch.long)
    mask[1, 20:] = 0
    targets = torch.ones(BATCH, 3, dtype=torch.long)
    return {"input_features": torch.randn(BATCH, 28, 6), "attention_mask": mask, "decoder_input_ids": targets}


def _moonshine() -> nn.Module:
    heads = {
        f"{side}_num_{kind}_heads": HEADS for side in ("encoder", "decoder") for kind in ("attention", "key_value")
    }
    shapes = {"hidden_size": D, "intermediate_size": 2 * D, "vocab_size": VOCAB}
    model: Any = hf("Moonshine", encoder_num_hidden_layers=LAYERS, decoder_num_hidden_layers=1, **heads, **shapes)()
    return model.encoder


_LAYOUT = {**TEXT, "coordinate_size": 4, "shape_size": 8, "input_size": 16, "patch_size": 4}
_LAYOUT |= {"max_2d_position_embeddings": 1024, "has_relative_attention_bias": True, "has_spatial_attention_bias": True}
TEXT_ENCODERS = [
    Case("splinter", "hf-bert", hf("Splinter", **TEXT), padded),
    Case("rocbert", "hf-bert", hf("RoCBert", **TEXT), padded),
    Case("chinese-clip-text", "hf-bert", hf("ChineseCLIPText", **TEXT), padded),
    Case("layoutlmv3", "hf-layoutlmv3", hf("LayoutLMv3", **_LAYOUT), _boxes),
    Case("layoutlmv3-picture", "hf-layoutlmv3", hf("LayoutLMv3", **_LAYOUT), lambda: {**_boxes(), **pixels()}),
    Case("rembert", "hf-rembert", hf("RemBert", input_embedding_size=16, **TEXT), padded),
    Case("rembert-decoder", "hf-rembert", hf("RemBert", is_decoder=True, **TEXT), padded, causal=True),
    Case("tapas", "hf-tapas", hf("Tapas", **TEXT), padded),
    Case("visual-bert", "hf-tapas", hf("VisualBert", **TEXT), padded),
    Case("big-bird", "hf-big-bird", hf("BigBird", attention_type="original_full", **TEXT), padded),
    Case(
        "big-bird-decoder",
        "hf-big-bird",
        hf("BigBird", attention_type="original_full", is_decoder=True, **TEXT),
        padded,
        causal=True,
    ),
    Case("xlm-roberta-xl", "hf-xlm-roberta-xl", hf("XLMRobertaXL", **TEXT), padded),
    Case("roberta-prelayernorm", "hf-roberta-prelayernorm", hf("RobertaPreLayerNorm", **TEXT), padded),
    Case("megatron-bert", "hf-megatron-bert", hf("MegatronBert", **TEXT), padded),
    Case("megatron-bert-decoder", "hf-megatron-bert", hf("MegatronBert", is_decoder=True, **TEXT), padded, causal=True),
    Case("nomic-bert", "hf-nomic-bert", hf("NomicBert", **TEXT), padded),
    Case("jina-v3", "hf-nomic-bert", hf("JinaEmbeddingsV3", **TEXT), padded),
    Case("gte", "hf-nomic-bert", hf("Gte", **TEXT), padded),
    Case("plbart", "hf-bart-encoder", hf("PLBart", **_ENCODER_DECODER), padded),
    Case("umt5", "hf-umt5-encoder", hf("UMT5", wrap="UMT5EncoderModel", **_T5), padded, norm_dtype=F32),
    Case(
        "switch",
        "hf-t5-encoder",
        hf(
            "SwitchTransformers",
            wrap="SwitchTransformersEncoderModel",
            num_experts=2,
            num_sparse_encoder_layers=1,
            **_T5,
        ),
        padded,
        norm_dtype=F32,
    ),
]


def _t5gemma() -> nn.Module:
    import transformers

    encoder, decoder = (transformers.T5GemmaModuleConfig(**GEMMA_MIXED) for _ in range(2))
    # fused attention does not cap the scores, as these models want
    model: Any = transformers.T5GemmaModel(
        transformers.T5GemmaConfig(encoder=encoder, decoder=decoder, attn_implementation="eager")
    )
    return model.encoder


TEXT_ENCODERS.append(Case("t5gemma", "hf-t5gemma-encoder", _t5gemma, padded, norm_dtype=F32, grouped=True))

SPEECH = [
    Case("unispeech", "hf-wav2vec2", hf("UniSpeech", **_SPEECH), _padded_waves),
    Case("unispeech-sat", "hf-wav2vec2", hf("UniSpeechSat", **_SPEECH), _padded_waves),
    Case(
        "unispeech-stable", "hf-wav2vec2-stable", hf("UniSpeech", do_stable_layer_norm=True, **_SPEECH), _padded_waves
    ),
    Case("sew", "hf-wav2vec2", hf("SEW", squeeze_factor=2, **_SPEECH), _padded_waves),
    Case("sew-d", "hf-sew-d", scripted("SEWD", squeeze_factor=2, **{**_DEBERTA, **_SPEECH}), _padded_waves),
    Case("moonshine", "hf-moonshine-encoder", _moonshine, lambda: {"input_values": torch.randn(BATCH, 4000)}),
    Case(
        "speech-to-text",
        "hf-whisper-encoder",
        hf("Speech2Text", input_feat_per_channel=6, conv_channels=16, max_source_positions=32, **_ENCODER_DECODER),
        _speech_to_text,
    ),
    *(
        Case(
            name.lower(),
            "hf-whisper-encoder",
            hf(name, f"{name}Config", name, num_mel_bins=6, max_source_positions=TOKENS, **shapes),
            _spectrum,
        )
        for name, shapes in (
            (
                "Qwen2AudioEncoder",
                {
                    k: _ENCODER_DECODER[k]
                    for k in ("d_model", *(f"encoder_{x}" for x in ("layers", "attention_heads", "ffn_dim")))
                },
            ),
            ("VoxtralEncoder", {k: v for k, v in TEXT.items() if k != "max_position_embeddings"}),
        )
    ),
    Case(
        "ast",
        "hf-deit",
        hf("AST", max_length=24, num_mel_bins=16, time_stride=4, frequency_stride=4, **VISION),
        lambda: {"input_values": torch.randn(BATCH, 24, 16)},
        prefix=2,
    ),
]

_SMALL_DPT = {"is_hybrid": False, "backbone_out_indices": [0, 1, 2, 2], "neck_hidden_sizes": [4, 4, 4, 4]}
_PREDICTOR = {"pred_hidden_size": D, "pred_num_hidden_layers": 1, "pred_num_attention_heads": HEADS}
_YOLOS = {**VISION, "image_size": [16, 16], "use_mid_position_embeddings": False, "num_detection_tokens": 3}
_INTERNVL = {**VISION, "image_size": [16, 16], "patch_size": [4, 4]}
TOWERS = [
    Case("vivit", "hf-vit", hf("Vivit", num_frames=4, tubelet_size=[2, 4, 4], **VISION), _video(), prefix=1),
    Case("videomae", "hf-ijepa", hf("VideoMAE", num_frames=4, **VISION), _video()),
    Case("videomae-normed", "hf-ijepa", hf("VideoMAE", num_frames=4, use_mean_pooling=False, **VISION), _video()),
    Case(
        "vjepa2",
        "hf-vjepa2-encoder",
        hf("VJEPA2", crop_size=16, frames_per_clip=4, **_PREDICTOR, **VISION),
        _video("pixel_values_videos"),
    ),
    Case("dpt", "hf-dpt", hf("DPT", **_SMALL_DPT, **VISION), pixels, prefix=1),
    Case("yolos", "hf-yolos", hf("Yolos", **_YOLOS), pixels, prefix=1),
    Case("vilt", "hf-vilt", hf("Vilt", **{**TEXT, **VISION}), _text_and_pixels),
    Case(
        "data2vec-vision",
        "hf-data2vec-vision",
        hf("Data2VecVision", attn_implementation="eager", use_relative_position_bias=True, **VISION),
        pixels,
        prefix=1,
    ),
    Case("internvl", "hf-internvl-vision", hf("InternVLVision", **_INTERNVL), pixels, prefix=1),
    Case(
        "internvl-normed",
        "hf-internvl-vision",
        hf("InternVLVision", use_mean_pooling=False, norm_type="rms_norm", use_qk_norm=True, **_INTERNVL),
        pixels,
        prefix=1,
        norm_dtype=F32,
    ),
    Case("aimv2", "hf-aimv2-vision", hf("Aimv2Vision", **VISION), pixels, norm_dtype=F32),
    Case("clipseg-vision", "hf-clip-vision", hf("CLIPSegVision", **VISION), pixels, prefix=1),
    Case("clipseg-text", "hf-clip-text", hf("CLIPSegText", eos_token_id=2, **TEXT), padded, causal=True),
    *(
        Case(f"{name.lower()}-vision", "hf-owlvit-vision", hf(f"{name}Vision", **VISION), pixels, prefix=1)
        for name in ("OwlViT", "Owlv2")
    ),
    *(
        Case(f"{name.lower()}-text", "hf-clip-text", hf(f"{name}Text", **TEXT), ids, causal=True)
        for name in ("OwlViT", "Owlv2")
    ),
    *(
        Case(
            f"{name.lower()}-vision",
            "hf-siglip-vision",
            hf(name, f"{name.removesuffix('Transformer')}Config", name, **VISION),
            pixels,
        )
        for name in ("Idefics3VisionTransformer", "SmolVLMVisionTransformer")
    ),
]

#: Measured, without attention matrices: WavLM gives their mean over heads.
WITHOUT_MAPS = [
    Case("wavlm", "hf-wavlm", hf("WavLM", **_SPEECH), _waves),
    Case("wavlm-stable", "hf-wavlm-stable", hf("WavLM", do_stable_layer_norm=True, **_SPEECH), _waves),
]

ENCODER_CASES = [*TEXT_ENCODERS, *SPEECH, *TOWERS]
