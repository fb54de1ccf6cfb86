"""Small models that share another family's block under a name of their own."""

from __future__ import annotations

import torch
from torch import Tensor

from model_cases.builders import (
    _ENCODER_DECODER,
    _EXPERTS,
    BATCH,
    DECODER,
    F32,
    HEADS,
    LAYERS,
    TEXT,
    TOKENS,
    VISION,
    VOCAB,
    Case,
    D,
    _timm,
    hf,
    ids,
    images,
    padded,
    pixels,
)


def _with_targets() -> dict[str, Tensor]:
    return {**padded(), "decoder_input_ids": ids()["input_ids"]}


_GLM_ASR = {k: DECODER[k] for k in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")}
_GLM_ASR |= {"num_key_value_heads": 2, "max_position_embeddings": 32}


RELATIVE_CASES = [
    Case("bert-generation", "hf-bert", hf("BertGeneration", wrap="BertGenerationEncoder", **TEXT), padded),
    Case("xlm-roberta", "hf-roberta", hf("XLMRoberta", **TEXT), padded),
    Case("ernie", "hf-bert", hf("Ernie", **TEXT), padded),
    Case("layoutlm", "hf-bert", hf("LayoutLM", **TEXT), padded),
    Case("markuplm", "hf-bert", hf("MarkupLM", **TEXT), padded),
    Case("data2vec-text", "hf-roberta", hf("Data2VecText", **TEXT), padded),
    Case("roformer", "hf-roformer", hf("RoFormer", embedding_size=16, **TEXT), padded),
    Case("metaclip2-text", "hf-clip-text", hf("MetaClip2Text", **TEXT, eos_token_id=2), ids, causal=True),
    Case("siglip2-text", "hf-siglip-text", hf("Siglip2Text", **TEXT), ids),
    Case("blenderbot", "hf-mbart-encoder", hf("Blenderbot", **_ENCODER_DECODER), _with_targets),
    Case("blenderbot-small", "hf-bart-encoder", hf("BlenderbotSmall", **_ENCODER_DECODER), _with_targets),
    Case("biogpt", "hf-xglm", hf("BioGpt", **TEXT), padded, causal=True),
    Case("timm-deepseek-vit", "timm-deepseek-vit", _timm("deepseek_vit_412m"), images, norm_dtype=torch.float32),
    Case("timm-qwen3-vit", "timm-qwen3-vit", _timm("qwen3_vit_88m"), images),
    Case("timm-eva-postnorm", "timm-eva-postnorm", _timm("eva02_enormous_patch14_clip_224"), images, prefix=1),
    Case("ijepa", "hf-ijepa", hf("IJepa", **VISION), pixels),
    *(
        Case(name.lower(), "hf-clip-vision", hf(name, **VISION), pixels, prefix=1)
        for name in ("ChineseCLIPVision", "MetaClip2Vision", "MLCDVision")
    ),
    *(
        Case(
            name.lower(), "hf-llama", hf(name, **DECODER, **extra), padded, causal=True, norm_dtype=dtype, grouped=True
        )
        for name, dtype, extra in (
            ("MiniMaxM2", F32, {**_EXPERTS, "head_dim": 8}),
            ("Cwm", F32, {"head_dim": 8, "sliding_window": 4}),
            ("Jais2", None, {}),
        )
    ),
    Case("align-text", "hf-bert", hf("AlignText", **TEXT), padded),
    Case("clap-text", "hf-roberta", hf("ClapText", **TEXT), padded),
    Case("altclip-vision", "hf-clip-vision", hf("AltCLIPVision", **VISION), pixels, prefix=1),
    Case("aimv2-text", "hf-aimv2-text", hf("Aimv2Text", **TEXT, eos_token_id=2), padded, causal=True, norm_dtype=F32),
    Case("flava-text", "hf-flava-text", hf("FlavaText", **TEXT), padded),
    Case("flava-image", "hf-flava-image", hf("FlavaImage", **VISION), pixels, prefix=1),
    Case("pixio", "hf-pixio", hf("Pixio", n_cls_tokens=3, **VISION), pixels, prefix=3),
    Case("sapiens2", "hf-dinov3", hf("Sapiens2", num_register_tokens=4, **VISION), pixels, prefix=5, norm_dtype=F32),
    Case("tipsv2-vision", "hf-dinov2-registers", hf("Tipsv2Vision", num_register_tokens=2, **VISION), pixels, prefix=3),
    Case("tipsv2-text", "hf-siglip-text", hf("Tipsv2Text", **TEXT), ids),
    Case("ultrabert", "hf-llama", hf("Ultrabert", sliding_window=4, **DECODER), padded, norm_dtype=F32, grouped=True),
    Case("emu3-text", "hf-emu3", hf("Emu3Text", **DECODER), padded, causal=True, norm_dtype=F32, grouped=True),
    *(
        Case(
            name.lower(),
            "hf-gpt-oss",
            hf(name, **DECODER, **_EXPERTS, head_dim=8, sliding_window=4),
            padded,
            causal=causal,
            norm_dtype=F32,
            grouped=True,
            sink=True,
        )
        for name, causal in (("Flint", True), ("OpenAIPrivacyFilter", False))
    ),
    Case(
        "decision-transformer",
        "hf-gpt2",
        hf(
            "DecisionTransformer",
            wrap="DecisionTransformerGPT2Model",
            hidden_size=D,
            n_layer=LAYERS,
            n_head=HEADS,
            n_positions=32,
            vocab_size=VOCAB,
        ),
        padded,
        causal=True,
    ),
    Case(
        "glm-asr",
        "hf-glm-asr-encoder",
        hf("GlmAsrEncoder", "GlmAsrEncoderConfig", "GlmAsrEncoder", num_mel_bins=6, **_GLM_ASR),
        lambda: {"input_features": torch.randn(BATCH, 6, 2 * TOKENS)},
        grouped=True,
    ),
]
