"""Rows for Hugging Face's vision encoders of depth, detection, video and vision-language models."""

from __future__ import annotations

from dataclasses import replace

from unsmooth.models.families.vision import HF_BEIT, HF_CLIP_VISION, HF_DINOV2, HF_VIT
from unsmooth.models.family import Family, Maps, Slot, eager_maps
from unsmooth.models.taps import into, out

assert HF_VIT.attention is not None
assert HF_BEIT.attention is not None
assert HF_DINOV2.attention is not None
assert HF_CLIP_VISION.attention is not None

_DPT = replace(
    HF_VIT,
    name="hf-dpt",
    classes=("transformers.DPTModel",),
    embed=out("embeddings.dropout"),  # a hybrid's embedding has none
)
_YOLOS = replace(
    HF_VIT,
    name="hf-yolos",
    classes=("transformers.YolosModel",),
    when={"attention.attention.config.use_mid_position_embeddings": False},  # else positions are added between layers
    suffix=("config.num_detection_tokens",),
)
_VILT = replace(  # text tokens, then patches; its attention shows the matrix to its dropout only
    HF_VIT,
    name="hf-vilt",
    classes=("transformers.ViltModel",),
    attention=replace(HF_VIT.attention, maps=Maps(into("attention.attention.dropout"))),
    prefix=(),
    pictures=1,
)
_DATA2VEC_VISION = replace(
    HF_BEIT,
    name="hf-data2vec-vision",
    classes=("transformers.Data2VecVisionModel",),
    when={"attention.attention.config._attn_implementation": "eager"},
    attention=replace(HF_BEIT.attention, maps=Maps(into("attention.attention.dropout"))),
)
_DATA2VEC_VISION_FUSED = replace(  # the class of its attention is chosen once, when it is made
    _DATA2VEC_VISION,
    name="hf-data2vec-vision-fused",
    when={},
    attention=replace(HF_BEIT.attention, maps=Maps(out("attention.attention", item=1))),
)
_INTERNVL = replace(
    HF_BEIT,
    name="hf-internvl-vision",
    classes=("transformers.InternVLVisionModel",),
    points={
        **HF_BEIT.points,
        "attn": out("attention", times="lambda_1"),
        "mlp": out("dropout", times="lambda_2"),
    },
    attention=replace(
        HF_BEIT.attention,
        module="attention",
        proj=Slot("attention.projection_layer"),
        heads="attention.num_heads",
        maps=eager_maps("attention"),
    ),
)
_VJEPA2 = replace(
    HF_DINOV2,
    name="hf-vjepa2-encoder",
    classes=("transformers.VJEPA2Encoder",),
    blocks="layer",
    attention=replace(
        HF_DINOV2.attention, value=Slot("attention.value"), proj=Slot("attention.proj"), maps=eager_maps("attention")
    ),
    prefix=(),
)
_AIMV2 = replace(
    HF_CLIP_VISION,
    name="hf-aimv2-vision",
    classes=("transformers.Aimv2VisionModel",),
    embed=out("embeddings"),
    points={
        "norm1": out("rms_norm1"),
        "attn": out("attention"),
        "mid": into("rms_norm2"),
        "norm2": out("rms_norm2"),
        "mlp": out("ffn"),
    },
    final_norm=out("rms_norm"),
    attention=replace(
        HF_CLIP_VISION.attention,
        module="attention",
        value=Slot("attention.v_proj"),
        proj=Slot("attention.out_proj"),
        heads="attention.num_heads",
        norm="rms_norm1",
        maps=eager_maps("attention"),
    ),
    prefix=(),
)
_OWLVIT = replace(
    HF_CLIP_VISION,
    name="hf-owlvit-vision",
    classes=("transformers.OwlViTVisionTransformer", "transformers.Owlv2VisionTransformer"),
    embed=out("pre_layernorm"),
)

FAMILIES: tuple[Family, ...] = (
    _DPT,
    _YOLOS,
    _VILT,
    _DATA2VEC_VISION,
    _DATA2VEC_VISION_FUSED,
    _INTERNVL,
    _VJEPA2,
    _AIMV2,
    _OWLVIT,
)
