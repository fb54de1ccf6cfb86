"""Rows for timm's vision transformers."""

from __future__ import annotations

from dataclasses import replace

from unsmooth.models.family import AttentionRow, Family, Maps, Slot, pre_norm
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
    points=pre_norm(
        "norm1", (out("drop_path1"), out("ls1"), out("attn")), "norm2", (out("drop_path2"), out("ls2"), out("mlp"))
    ),
    final_norm=out("norm"),
    attention=_TIMM_ATTENTION,
    prefix=("num_prefix_tokens",),
)

# ViT-22B's block: the MLP's first layer, queries, keys and values are one weight, and LayerScale and drop path act on
# the sum of both branches.
_TIMM_PARALLEL = replace(
    _TIMM_VIT,
    name="timm-vit-parallel",
    placement="parallel-shared",
    block_classes=("timm.ParallelScalingBlock",),
    when={"out_proj": None},
    points={
        "norm1": out("in_norm"),
        "attn": out("attn_out_proj", times="ls.gamma"),
        "mlp": out("mlp_out_proj", times="ls.gamma"),
    },
    attention=AttentionRow(
        module="in_proj",
        value=Slot("in_proj", part=-1),
        proj=Slot("attn_out_proj"),
        heads="num_heads",
        norm="in_norm",
        scale="ls.gamma",
        result=out("attn_out_proj"),
        maps=Maps(into("attn_drop"), settings={"fused_attn": False}),
    ),
    eval_only=("attn", "mlp"),
)

# x + norm(attn(x)): the normalisation is on the branch's output, its input is the bare stream.
_TIMM_RESPOST = replace(
    _TIMM_VIT,
    name="timm-vit-respost",
    block_classes=("timm.ResPostBlock",),
    points={"attn": (out("drop_path1"), out("norm1")), "mid": into("mlp"), "mlp": (out("drop_path2"), out("norm2"))},
    attention=replace(_TIMM_ATTENTION, norm=(), out_norm="norm1"),
)

_TIMM_EVA = _TIMM_VIT.like("timm-eva", ("timm.Eva",), block_classes=("timm.EvaBlock",))
_TIMM_EVA_POSTNORM = _TIMM_RESPOST.like("timm-eva-postnorm", ("timm.Eva",), block_classes=("timm.EvaBlockPostNorm",))

# The vision towers of DeepSeek's and Qwen's multimodal models.
_TIMM_DEEPSEEK = _TIMM_EVA.like(
    "timm-deepseek-vit", ("timm.DeepseekVitEncoder",), block_classes=("timm.DeepseekVitBlock",), embed=()
)
_TIMM_QWEN3 = _TIMM_EVA.like("timm-qwen3-vit", ("timm.Qwen3VitEncoder",), embed=())

# The LayerScale of BEiT is a parameter of the block; its value bias stands beside a fused weight without one.
_TIMM_BEIT = _TIMM_VIT.like("timm-beit", ("timm.Beit",), block_classes=("timm.Block",), embed=out("pos_drop"))
_TIMM_RELPOS = _TIMM_VIT.like(
    "timm-vit-relpos", ("timm.VisionTransformerRelPos",), block_classes=("timm.RelPosBlock",), embed=()
)
_TIMM_RELPOS_RESPOST = _TIMM_RESPOST.like(
    "timm-vit-relpos-respost", ("timm.VisionTransformerRelPos",), block_classes=("timm.ResPostRelPosBlock",), embed=()
)
_TIMM_NAFLEX = _TIMM_VIT.like("timm-naflexvit", ("timm.NaFlexVit",))

# The two maps across heads around the softmax are in the matrices, whose rows then sum to anything; the class token
# enters after the last block, with attention of its own.
_TIMM_CAIT = replace(
    _TIMM_VIT,
    name="timm-cait",
    classes=("timm.Cait",),
    block_classes=("timm.LayerScaleBlock",),
    embed=out("pos_drop"),
    points={**_TIMM_VIT.points, "attn": out("drop_path", 1, of=2), "mlp": out("drop_path", 2, of=2)},
    final_norm=(),
    attention=replace(_TIMM_ATTENTION, sink="attn.proj_w"),
    prefix=(),
)
