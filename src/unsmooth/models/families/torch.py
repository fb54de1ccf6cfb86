"""Rows for torchvision's ViT and for torch.nn.TransformerEncoder."""

from __future__ import annotations

from dataclasses import replace

from unsmooth.models.family import AttentionRow, Family, Maps, Slot
from unsmooth.models.taps import into, out

_TORCHVISION_VIT = Family(
    name="torchvision-vit",
    classes=("torchvision.VisionTransformer",),
    blocks="encoder.layers",
    embed=out("encoder.dropout"),
    points={
        "norm1": out("ln_1"),
        "attn": out("dropout"),
        "mid": into("ln_2"),
        "norm2": out("ln_2"),
        "mlp": out("mlp"),
    },
    final_norm=out("encoder.ln"),
    attention=AttentionRow(
        module="self_attention",
        value=Slot("self_attention", part=2, of=3, weight="in_proj_weight", bias="in_proj_bias"),
        proj=Slot("self_attention.out_proj"),
        heads="self_attention.num_heads",
        norm="ln_1",
        maps=Maps(
            out("self_attention", item=1),
            call_with={"need_weights": True, "average_attn_weights": False},
        ),
    ),
    prefix=(1,),
    width="hidden_dim",
)

_TORCH_PRE = Family(
    name="torch-encoder-pre",
    classes=("torch.TransformerEncoder",),
    blocks="layers",
    when={"norm_first": True},
    points={
        "norm1": out("norm1"),
        "attn": out("dropout1"),
        "mid": into("norm2"),
        "norm2": out("norm2"),
        "mlp": out("dropout2"),
    },
    final_norm=out("norm"),
    attention=AttentionRow(
        module="self_attn",
        value=Slot("self_attn", part=2, of=3, weight="in_proj_weight", bias="in_proj_bias"),
        proj=Slot("self_attn.out_proj"),
        heads="self_attn.num_heads",
        norm="norm1",
        maps=Maps(
            out("self_attn", item=1),
            call_with={"need_weights": True, "average_attn_weights": False},
        ),
        nonlinear=("self_attn.bias_v",),
    ),
    width="layers.0.self_attn.embed_dim",
    batch_first="self_attn.batch_first",
)

assert _TORCH_PRE.attention is not None
_TORCH_POST = replace(
    _TORCH_PRE,
    name="torch-encoder-post",
    placement="post",
    when={"norm_first": False},
    points={
        "attn": out("dropout1"),
        "attn_sum": into("norm1"),
        "mid": out("norm1"),
        "mlp": out("dropout2"),
        "mlp_sum": into("norm2"),
    },
    attention=replace(_TORCH_PRE.attention, norm=(), post_norm="norm1"),
)

FAMILIES: tuple[Family, ...] = (_TORCHVISION_VIT, _TORCH_PRE, _TORCH_POST)
