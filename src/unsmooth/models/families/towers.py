"""Rows for Hugging Face's vision encoders of depth, detection, video and vision-language models."""

from __future__ import annotations

from unsmooth.models.families.vision import HF_BEIT, HF_CLIP_VISION, HF_DINOV2, HF_VIT
from unsmooth.models.family import Maps, Slot, eager_maps, hf, pre_norm
from unsmooth.models.taps import into, out

_DPT = HF_VIT.like("hf-dpt", hf("DPTModel"), embed=out("embeddings.dropout"))  # a hybrid's embedding has none
_YOLOS = HF_VIT.like(
    "hf-yolos",
    hf("YolosModel"),
    when={"attention.attention.config.use_mid_position_embeddings": False},  # else positions are added between layers
    suffix=("config.num_detection_tokens",),
)
# text tokens, then patches; its attention shows the matrix to its dropout only
_VILT = HF_VIT.like(
    "hf-vilt", hf("ViltModel"), attention={"maps": Maps(into("attention.attention.dropout"))}, prefix=(), pictures=1
)
_FLAVA_TEXT = _VILT.like("hf-flava-text", hf("FlavaTextModel"), pictures=None)
_FLAVA_IMAGE = _FLAVA_TEXT.like("hf-flava-image", hf("FlavaImageModel"), prefix=(1,))
_PIXIO = HF_VIT.like("hf-pixio", hf("PixioModel"), prefix=("embeddings.n_cls_tokens",))
_DATA2VEC_VISION = HF_BEIT.like(
    "hf-data2vec-vision",
    hf("Data2VecVisionModel"),
    when={"attention.attention.config._attn_implementation": "eager"},
    attention={"maps": Maps(into("attention.attention.dropout"))},
)
# the class of its attention is chosen once, when it is made
_DATA2VEC_VISION_FUSED = _DATA2VEC_VISION.like(
    "hf-data2vec-vision-fused", when={}, attention={"maps": Maps(out("attention.attention", item=1))}
)
_INTERNVL = HF_BEIT.like(
    "hf-internvl-vision",
    hf("InternVLVisionModel"),
    points={"attn": out("attention", times="lambda_1"), "mlp": out("dropout", times="lambda_2")},
    attention={
        "module": "attention",
        "proj": Slot("attention.projection_layer"),
        "heads": "attention.num_heads",
        "maps": eager_maps("attention"),
    },
)
_VJEPA2 = HF_DINOV2.like(
    "hf-vjepa2-encoder",
    hf("VJEPA2Encoder"),
    blocks="layer",
    attention={"value": Slot("attention.value"), "proj": Slot("attention.proj"), "maps": eager_maps("attention")},
    prefix=(),
)
_AIMV2 = HF_CLIP_VISION.like(
    "hf-aimv2-vision",
    hf("Aimv2VisionModel"),
    embed=out("embeddings"),
    points=pre_norm("rms_norm1", "attention", "rms_norm2", "ffn"),
    final_norm=out("rms_norm"),
    attention={
        "module": "attention",
        "value": Slot("attention.v_proj"),
        "proj": Slot("attention.out_proj"),
        "heads": "attention.num_heads",
        "norm": "rms_norm1",
        "maps": eager_maps("attention"),
    },
    prefix=(),
)
_AIMV2_TEXT = _AIMV2.like("hf-aimv2-text", hf("Aimv2TextModel"), causal=True)
_OWLVIT = HF_CLIP_VISION.like(
    "hf-owlvit-vision", hf("OwlViTVisionTransformer Owlv2VisionTransformer"), embed=out("pre_layernorm")
)
