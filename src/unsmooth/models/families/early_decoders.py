"""Rows for the decoders before GPT-2, and for one whose heads are subtracted from each other."""

from __future__ import annotations

from dataclasses import replace

from unsmooth.models.families.decoders import GPT2, LLAMA
from unsmooth.models.family import AttentionRow, Family, Maps, Slot, eager_maps, hf, post_norm, pre_norm
from unsmooth.models.taps import into, out

_OPENAI_GPT = GPT2.like(
    "hf-openai-gpt",
    hf("OpenAIGPTModel"),
    placement="post",
    points=post_norm("attn", "ln_1", "mlp", "ln_2"),
    final_norm=(),
    attention={"heads": "attn.n_head", "norm": (), "post_norm": "ln_1", "maps": Maps(into("attn.attn_dropout"))},
)
_CTRL = Family(
    name="hf-ctrl",
    classes=hf("CTRLModel"),
    blocks="h",
    embed=out("dropout"),
    points=pre_norm("layernorm1", "dropout1", "layernorm2", "dropout2"),
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
_DIFF_LLAMA = replace(LLAMA, name="hf-diffllama", classes=hf("DiffLlamaModel"), attention=None)
