"""Rows for vision transformers (timm, Hugging Face) and Whisper's encoder."""

from __future__ import annotations

from dataclasses import replace

from unsmooth.models.family import AttentionRow, Family, Maps, Refusal, Slot, eager_maps
from unsmooth.models.taps import into, out

_TIMM_ATTENTION = AttentionRow(
    module="attn",
    value=(
        Slot("attn.v_proj"),
        Slot("attn", part=2, of=3, weight="qkv.weight", bias="v_bias", bias_fused=False),
        Slot("attn.qkv", part=2, of=3),
    ),
    proj=Slot("attn.proj"),
    heads="attn.num_heads",
    kv_heads="attn.num_kv_heads",
    norm="norm1",
    scale=("ls1.gamma", "gamma_1"),
    maps=Maps(into("attn.attn_drop"), settings={"attn.fused_attn": False}),
    nonlinear=("attn.norm", "attn.gate", "attn.sub_norm", "attn.lambda_init"),
)

_TIMM_VIT = Family(
    name="timm-vit",
    classes=("timm.VisionTransformer",),
    blocks="blocks",
    block_classes=("timm.Block",),
    embed=out("norm_pre"),
    points={
        "norm1": out("norm1"),
        "attn": (out("drop_path1"), out("ls1"), out("attn")),
        "mid": into("norm2"),
        "norm2": out("norm2"),
        "mlp": (out("drop_path2"), out("ls2"), out("mlp")),
    },
    final_norm=out("norm"),
    attention=_TIMM_ATTENTION,
    prefix=("num_prefix_tokens",),
)

# x + norm(attn(x)): the normalisation is on the branch's output, its input is the bare stream.
_TIMM_RESPOST = replace(
    _TIMM_VIT,
    name="timm-vit-respost",
    block_classes=("timm.ResPostBlock",),
    points={"attn": (out("drop_path1"), out("norm1")), "mid": into("mlp"), "mlp": (out("drop_path2"), out("norm2"))},
    attention=replace(_TIMM_ATTENTION, norm=(), out_norm="norm1"),
)

_HF_VIT = Family(
    name="hf-vit",
    classes=("transformers.ViTModel",),
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

_HF_DEIT = replace(_HF_VIT, name="hf-deit", classes=("transformers.DeiTModel",), prefix=(2,))

assert _HF_VIT.attention is not None
_HF_DINOV2 = replace(
    _HF_VIT,
    name="hf-dinov2",
    classes=("transformers.Dinov2Model",),
    points={
        "norm1": out("norm1"),
        "attn": out("drop_path", 1, of=2),
        "mid": into("norm2"),
        "norm2": out("norm2"),
        "mlp": out("drop_path", 2, of=2),
    },
    attention=replace(_HF_VIT.attention, norm="norm1", scale="layer_scale1.lambda1"),
)

_HF_DINOV2_REGISTERS = replace(
    _HF_DINOV2,
    name="hf-dinov2-registers",
    classes=("transformers.Dinov2WithRegistersModel",),
    prefix=(1, "config.num_register_tokens"),
)

assert _HF_DINOV2.attention is not None
_HF_DINOV3 = replace(
    _HF_DINOV2_REGISTERS,
    name="hf-dinov3",
    classes=("transformers.DINOv3ViTModel",),
    blocks=("model.layer", "layer"),
    final_norm=out("norm"),
    attention=replace(_HF_DINOV2.attention, heads="attention.num_heads"),
)

_HF_CLIP_VISION = Family(
    name="hf-clip-vision",
    classes=("transformers.CLIPVisionModel", "transformers.CLIPVisionTransformer"),
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
    _HF_CLIP_VISION,
    name="hf-siglip-vision",
    classes=("transformers.SiglipVisionModel", "transformers.SiglipVisionTransformer"),
    embed=(out("embeddings"), out("vision_model.embeddings")),
    final_norm=(out("post_layernorm"), out("vision_model.post_layernorm")),
    prefix=(),
)

_WHISPER_ENCODER = Family(
    name="hf-whisper-encoder",
    classes=("transformers.WhisperEncoder",),
    blocks="layers",
    points={
        "norm1": out("self_attn_layer_norm"),
        "attn": out("self_attn"),
        "mid": into("final_layer_norm"),
        "norm2": out("final_layer_norm"),
        "mlp": out("fc2"),
    },
    final_norm=out("layer_norm"),
    attention=AttentionRow(
        module="self_attn",
        value=Slot("self_attn.v_proj"),
        proj=Slot("self_attn.out_proj"),
        heads="self_attn.num_heads",
        norm="self_attn_layer_norm",
        maps=eager_maps("self_attn"),
    ),
    width="config.d_model",
    eval_only=("attn", "mlp"),
)

_TIMM_EVA = replace(_TIMM_VIT, name="timm-eva", classes=("timm.Eva",), block_classes=("timm.EvaBlock",))
_TIMM_EVA_POSTNORM = replace(
    _TIMM_RESPOST, name="timm-eva-postnorm", classes=("timm.Eva",), block_classes=("timm.EvaBlockPostNorm",)
)

FAMILIES: tuple[Family, ...] = (
    _TIMM_VIT,
    _TIMM_RESPOST,
    _TIMM_EVA,
    _TIMM_EVA_POSTNORM,
    _HF_VIT,
    _HF_DEIT,
    _HF_DINOV2,
    _HF_DINOV2_REGISTERS,
    _HF_DINOV3,
    _HF_CLIP_VISION,
    _HF_SIGLIP_VISION,
    _WHISPER_ENCODER,
)

_ONE_SUM = (
    "adds attention and MLP in one sum, so the stream between them (mid) does not exist and "
    "smoothing cannot be told apart by kind"
)
REFUSED: tuple[Refusal, ...] = (
    Refusal(("timm.ParallelScalingBlock", "timm.DiffParallelScalingBlock"), _ONE_SUM),
    Refusal(
        ("timm.ParallelThingsBlock",),
        "runs several attentions side by side in one layer, so a layer has no single attention output",
    ),
)
