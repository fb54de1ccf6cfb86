"""Small models that share another family's block under a name of their own."""

from __future__ import annotations

from torch import Tensor

from model_cases.builders import (
    _ENCODER_DECODER,
    _EXPERTS,
    DECODER,
    F32,
    TEXT,
    VISION,
    Case,
    _timm,
    hf,
    ids,
    images,
    padded,
    pixels,
)


def _with_targets() -> dict[str, Tensor]:
    return {**padded(), "decoder_input_ids": ids()["input_ids"]}


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
]
