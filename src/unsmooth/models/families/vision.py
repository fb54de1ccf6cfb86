"""Rows for Hugging Face's vision transformers, and the text towers of CLIP and SigLIP."""

from __future__ import annotations

from unsmooth.models.family import AttentionRow, Family, Slot, eager_maps, hf, pre_norm
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

_HF_DEIT = HF_VIT.like("hf-deit", hf("DeiTModel ASTModel"), prefix=(2,))
_HF_IJEPA = HF_VIT.like("hf-ijepa", hf("IJepaModel VideoMAEModel"), prefix=())

HF_DINOV2 = HF_VIT.like(
    "hf-dinov2",
    hf("Dinov2Model"),
    points=pre_norm("norm1", out("drop_path", 1, of=2), "norm2", out("drop_path", 2, of=2)),
    attention={"norm": "norm1", "scale": "layer_scale1.lambda1"},
)

_HF_DINOV2_REGISTERS = HF_DINOV2.like(
    "hf-dinov2-registers", hf("Dinov2WithRegistersModel Tipsv2VisionModel"), prefix=(1, "config.num_register_tokens")
)

# LayerScale is a parameter of the block, not a module; drop_path stands after it, once per sub-layer.
HF_BEIT = HF_VIT.like(
    "hf-beit",
    hf("BeitModel"),
    points={"attn": out("drop_path", 1, of=2), "mlp": out("drop_path", 2, of=2)},
    attention={"scale": "lambda_1"},
)

_HF_DINOV3 = _HF_DINOV2_REGISTERS.like(
    "hf-dinov3",
    hf("DINOv3ViTModel Sapiens2Model"),
    blocks=("model.layer", "layer"),
    final_norm=out("norm"),
    attention={"heads": "attention.num_heads"},
)

HF_CLIP_VISION = Family(
    name="hf-clip-vision",
    classes=hf(
        "CLIPVisionModel CLIPVisionTransformer CLIPSegVisionModel CLIPSegVisionTransformer "
        "ChineseCLIPVisionModel MetaClip2VisionModel MLCDVisionModel AltCLIPVisionModel"
    ),
    blocks=("encoder.layers", "vision_model.encoder.layers"),
    embed=(out("pre_layrnorm"), out("vision_model.pre_layrnorm")),
    points=pre_norm("layer_norm1", "self_attn", "layer_norm2", "mlp"),
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

_HF_SIGLIP_VISION = HF_CLIP_VISION.like(
    "hf-siglip-vision",
    hf(
        "SiglipVisionModel SiglipVisionTransformer Siglip2VisionModel Siglip2VisionTransformer "
        "Idefics3VisionTransformer SmolVLMVisionTransformer"
    ),
    embed=(out("embeddings"), out("vision_model.embeddings")),
    final_norm=(out("post_layernorm"), out("vision_model.post_layernorm")),
    prefix=(),
)

_HF_CLIP_TEXT = HF_CLIP_VISION.like(
    "hf-clip-text",
    hf(
        "CLIPTextModel CLIPTextTransformer MetaClip2TextModel CLIPSegTextModel CLIPSegTextTransformer "
        "OwlViTTextTransformer Owlv2TextTransformer"
    ),
    blocks=("encoder.layers", "text_model.encoder.layers"),
    embed=(out("embeddings"), out("text_model.embeddings")),
    final_norm=(out("final_layer_norm"), out("text_model.final_layer_norm")),
    prefix=(),
    causal=True,
)
_HF_SIGLIP_TEXT = _HF_CLIP_TEXT.like(
    "hf-siglip-text",
    hf("SiglipTextModel SiglipTextTransformer Siglip2TextModel Siglip2TextTransformer Tipsv2TextModel"),
    causal=False,
)
