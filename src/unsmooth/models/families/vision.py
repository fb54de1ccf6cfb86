"""Rows for Hugging Face's vision transformers, and the text towers of CLIP and SigLIP."""

from __future__ import annotations

from dataclasses import replace

from unsmooth.models.family import AttentionRow, Family, Slot, eager_maps
from unsmooth.models.taps import into, out

HF_VIT = Family(
    name="hf-vit",
    classes=(
        "transformers.ViTModel",
        "transformers.ViTMAEModel",  # what it sees
        "transformers.ViTMSNModel",
        "transformers.VivitModel",
    ),
    blocks=("layers", "encoder.layer"),
    embed=out("embeddings"),
    points={
        "norm1": out("layernorm_before"),
        "attn": (out("dropout", 1, of=2), out("attention")),
        "mid": into("layernorm_after"),
        "norm2": out("layernorm_after"),
        "mlp": (out("dropout", 2, of=2), out("output.dropout")),
    },
    final_norm=out("layernorm"),
    attention=AttentionRow(
        module=("attention.attention", "attention"),
        value=(Slot("attention.v_proj"), Slot("attention.attention.value")),
        proj=(Slot("attention.o_proj"), Slot("attention.output.dense")),
        heads=("attention.num_attention_heads", "attention.attention.num_attention_heads"),
        norm="layernorm_before",
        result=(out("attention.output.dense"), out("attention")),
        maps=eager_maps("attention.attention", "attention"),
    ),
    prefix=(1,),
)

_HF_DEIT = replace(HF_VIT, name="hf-deit", classes=("transformers.DeiTModel", "transformers.ASTModel"), prefix=(2,))
_HF_IJEPA = replace(
    HF_VIT, name="hf-ijepa", classes=("transformers.IJepaModel", "transformers.VideoMAEModel"), prefix=()
)

assert HF_VIT.attention is not None
HF_DINOV2 = replace(
    HF_VIT,
    name="hf-dinov2",
    classes=("transformers.Dinov2Model",),
    points={
        "norm1": out("norm1"),
        "attn": out("drop_path", 1, of=2),
        "mid": into("norm2"),
        "norm2": out("norm2"),
        "mlp": out("drop_path", 2, of=2),
    },
    attention=replace(HF_VIT.attention, norm="norm1", scale="layer_scale1.lambda1"),
)

_HF_DINOV2_REGISTERS = replace(
    HF_DINOV2,
    name="hf-dinov2-registers",
    classes=("transformers.Dinov2WithRegistersModel",),
    prefix=(1, "config.num_register_tokens"),
)

# LayerScale is a parameter of the block, not a module; drop_path stands after it, once per sub-layer.
HF_BEIT = replace(
    HF_VIT,
    name="hf-beit",
    classes=("transformers.BeitModel",),
    points={**HF_VIT.points, "attn": out("drop_path", 1, of=2), "mlp": out("drop_path", 2, of=2)},
    attention=replace(HF_VIT.attention, scale="lambda_1"),
)

assert HF_DINOV2.attention is not None
_HF_DINOV3 = replace(
    _HF_DINOV2_REGISTERS,
    name="hf-dinov3",
    classes=("transformers.DINOv3ViTModel",),
    blocks=("model.layer", "layer"),
    final_norm=out("norm"),
    attention=replace(HF_DINOV2.attention, heads="attention.num_heads"),
)

HF_CLIP_VISION = Family(
    name="hf-clip-vision",
    classes=(
        "transformers.CLIPVisionModel",
        "transformers.CLIPVisionTransformer",
        "transformers.CLIPSegVisionModel",
        "transformers.CLIPSegVisionTransformer",
        "transformers.ChineseCLIPVisionModel",
        "transformers.MetaClip2VisionModel",
        "transformers.MLCDVisionModel",
    ),
    blocks=("encoder.layers", "vision_model.encoder.layers"),
    embed=(out("pre_layrnorm"), out("vision_model.pre_layrnorm")),
    points={
        "norm1": out("layer_norm1"),
        "attn": out("self_attn"),
        "mid": into("layer_norm2"),
        "norm2": out("layer_norm2"),
        "mlp": out("mlp"),
    },
    attention=AttentionRow(
        module="self_attn",
        value=Slot("self_attn.v_proj"),
        proj=Slot("self_attn.out_proj"),
        heads="self_attn.num_heads",
        norm="layer_norm1",
        maps=eager_maps("self_attn"),
    ),
    prefix=(1,),
)

_HF_SIGLIP_VISION = replace(
    HF_CLIP_VISION,
    name="hf-siglip-vision",
    classes=(
        "transformers.SiglipVisionModel",
        "transformers.SiglipVisionTransformer",
        "transformers.Siglip2VisionModel",
        "transformers.Siglip2VisionTransformer",
        "transformers.Idefics3VisionTransformer",
        "transformers.SmolVLMVisionTransformer",
    ),
    embed=(out("embeddings"), out("vision_model.embeddings")),
    final_norm=(out("post_layernorm"), out("vision_model.post_layernorm")),
    prefix=(),
)

_HF_CLIP_TEXT = replace(
    HF_CLIP_VISION,
    name="hf-clip-text",
    classes=(
        "transformers.CLIPTextModel",
        "transformers.CLIPTextTransformer",
        "transformers.MetaClip2TextModel",
        "transformers.CLIPSegTextModel",
        "transformers.CLIPSegTextTransformer",
        "transformers.OwlViTTextTransformer",
        "transformers.Owlv2TextTransformer",
    ),
    blocks=("encoder.layers", "text_model.encoder.layers"),
    embed=(out("embeddings"), out("text_model.embeddings")),
    final_norm=(out("final_layer_norm"), out("text_model.final_layer_norm")),
    prefix=(),
    causal=True,
)
_HF_SIGLIP_TEXT = replace(
    _HF_CLIP_TEXT,
    name="hf-siglip-text",
    classes=(
        "transformers.SiglipTextModel",
        "transformers.SiglipTextTransformer",
        "transformers.Siglip2TextModel",
        "transformers.Siglip2TextTransformer",
    ),
    causal=False,
)

FAMILIES: tuple[Family, ...] = (
    HF_VIT,
    _HF_DEIT,
    _HF_IJEPA,
    HF_BEIT,
    HF_DINOV2,
    _HF_DINOV2_REGISTERS,
    _HF_DINOV3,
    HF_CLIP_VISION,
    _HF_CLIP_TEXT,
    _HF_SIGLIP_VISION,
    _HF_SIGLIP_TEXT,
)
