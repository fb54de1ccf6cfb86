"""Rows for decoders that keep queries, keys and values in one weight whose parts are unequal or stand head by head."""

from __future__ import annotations

from unsmooth.models.families.decoders import GPT2, LLAMA
from unsmooth.models.family import AttentionRow, Family, Maps, Slot, hf, pre_norm
from unsmooth.models.taps import into, out

_PHI3 = LLAMA.like(
    "hf-phi3",
    hf("Phi3Model"),
    points={"attn": out("resid_attn_dropout"), "mlp": out("resid_mlp_dropout")},
    attention={"value": Slot("self_attn.qkv_proj", part=-1)},
    causal=True,
)
_PERSIMMON = LLAMA.like(
    "hf-persimmon",
    hf("PersimmonModel"),
    points={"mlp": out("dropout")},
    final_norm=out("final_layernorm"),
    attention={
        "value": Slot("self_attn.query_key_value", part=-1, groups="kv_heads"),
        "proj": Slot("self_attn.dense"),
        "kv_heads": (),
    },
    causal=True,
)
_GPT_BIGCODE = GPT2.like(  # StarCoder, SantaCoder
    "hf-gpt-bigcode",
    hf("GPTBigCodeModel"),
    attention={
        "value": Slot("attn.c_attn", part=-1, groups="kv_heads"),  # all queries first where one value head serves all
        "proj": Slot("attn.c_proj"),
        "kv_heads": "attn.kv_heads",
    },
)

# Attention and MLP add to the stream themselves, after a functional dropout: what they add is their last linear map's.
_BLOOM = Family(
    name="hf-bloom",
    classes=hf("BloomModel"),
    blocks="h",
    when={"apply_residual_connection_post_layernorm": False},
    embed=out("word_embeddings_layernorm"),
    points=pre_norm("input_layernorm", "self_attention.dense", "post_attention_layernorm", "mlp.dense_4h_to_h"),
    final_norm=out("ln_f"),
    attention=AttentionRow(
        module="self_attention",
        value=Slot("self_attention.query_key_value", part=-1, groups="kv_heads"),
        proj=Slot("self_attention.dense"),
        heads="self_attention.num_heads",
        norm="input_layernorm",
        result=out("self_attention.dense"),
        maps=Maps(into("self_attention.attention_dropout")),
    ),
    width="embed_dim",
    causal=True,
    eval_only=("attn", "mlp"),
)
_MPT = Family(
    name="hf-mpt",
    classes=hf("MptModel"),
    blocks="blocks",
    embed=out("wte"),
    points=pre_norm("norm_1", "resid_attn_dropout", "norm_2", "ffn.down_proj"),
    final_norm=out("norm_f"),
    attention=AttentionRow(
        module="attn",
        value=Slot("attn.Wqkv", part=2, of=3),
        proj=Slot("attn.out_proj"),
        heads="attn.n_heads",
        norm="norm_1",
        maps=Maps(out("attn", item=1)),
        nonlinear=("attn.clip_qkv",),
    ),
    width="hidden_size",
    causal=True,
    eval_only=("mlp",),
)
