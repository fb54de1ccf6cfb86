"""Rows for torchvision's ViT and for torch.nn.TransformerEncoder."""

from __future__ import annotations

from unsmooth.models.family import AttentionRow, Family, Maps, Slot, post_norm, pre_norm
from unsmooth.models.taps import out

_TORCHVISION_VIT = Family(
    name="torchvision-vit",
    classes=("torchvision.VisionTransformer",),
    blocks="encoder.layers",
    embed=out("encoder.dropout"),
    points=pre_norm("ln_1", "dropout", "ln_2", "mlp"),
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
    points=pre_norm("norm1", "dropout1", "norm2", "dropout2"),
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

_TORCH_POST = _TORCH_PRE.like(
    "torch-encoder-post",
    placement="post",
    when={"norm_first": False},
    points=post_norm("dropout1", "norm1", "dropout2", "norm2"),
    attention={"norm": (), "post_norm": "norm1"},
)
