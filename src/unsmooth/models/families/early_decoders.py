"""Rows for the decoders before GPT-2, and for one whose heads are subtracted from each other."""

from __future__ import annotations

from dataclasses import replace

from unsmooth.models.families.decoders import GPT2, LLAMA
from unsmooth.models.family import AttentionRow, Family, Maps, Slot, eager_maps
from unsmooth.models.taps import into, out

assert GPT2.attention is not None
_OPENAI_GPT = replace(
    GPT2,
    name="hf-openai-gpt",
    classes=("transformers.OpenAIGPTModel",),
    placement="post",
    points={
        "attn": out("attn"),
        "attn_sum": into("ln_1"),
        "mid": out("ln_1"),
        "mlp": out("mlp"),
        "mlp_sum": into("ln_2"),
    },
    final_norm=(),
    attention=replace(
        GPT2.attention, heads="attn.n_head", norm=(), post_norm="ln_1", maps=Maps(into("attn.attn_dropout"))
    ),
)
_CTRL = Family(
    name="hf-ctrl",
    classes=("transformers.CTRLModel",),
    blocks="h",
    embed=out("dropout"),
    points={
        "norm1": out("layernorm1"),
        "attn": out("dropout1"),
        "mid": into("layernorm2"),
        "norm2": out("layernorm2"),
        "mlp": out("dropout2"),
    },
    final_norm=out("layernorm"),
    attention=AttentionRow(
        module="multi_head_attention",
        value=Slot("multi_head_attention.Wv"),
        proj=Slot("multi_head_attention.dense"),
        heads="multi_head_attention.num_heads",
        norm="layernorm1",
        maps=replace(eager_maps("multi_head_attention"), call_with={"output_attentions": True}),
    ),
    causal=True,
)
# Two softmaxes are subtracted and the difference normalised: neither one matrix nor a sum of A X W_V W_proj. Measured.
_DIFF_LLAMA = replace(LLAMA, name="hf-diffllama", classes=("transformers.DiffLlamaModel",), attention=None)

FAMILIES: tuple[Family, ...] = (_OPENAI_GPT, _CTRL, _DIFF_LLAMA)
