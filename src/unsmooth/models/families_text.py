"""Rows for text transformers (Hugging Face)."""

from __future__ import annotations

from dataclasses import replace

from unsmooth.models.family import AttentionRow, Family, Maps, Refusal, Slot, eager_maps
from unsmooth.models.taps import into, out

_BERT = Family(
    name="hf-bert",
    classes=("transformers.BertModel",),
    placement="post",
    blocks="encoder.layer",
    embed=out("embeddings"),
    points={
        "attn": out("attention.output.dropout"),
        "attn_sum": into("attention.output.LayerNorm"),
        "mid": out("attention.output.LayerNorm"),
        "mlp": out("output.dropout"),
        "mlp_sum": into("output.LayerNorm"),
    },
    attention=AttentionRow(
        module="attention.self",
        value=Slot("attention.self.value"),
        proj=Slot("attention.output.dense"),
        heads="attention.self.num_attention_heads",
        post_norm="attention.output.LayerNorm",
        result=out("attention.output.dense"),
        maps=eager_maps("attention.self"),
    ),
    when={"crossattention": None},
    causal="attention.self.is_causal",
)
_ROBERTA = replace(_BERT, name="hf-roberta", classes=("transformers.RobertaModel", "transformers.XLMRobertaModel"))

_DISTILBERT = Family(
    name="hf-distilbert",
    classes=("transformers.DistilBertModel",),
    placement="post",
    blocks="transformer.layer",
    embed=out("embeddings"),
    points={
        "attn": out("attention"),
        "attn_sum": into("sa_layer_norm"),
        "mid": out("sa_layer_norm"),
        "mlp": out("ffn"),
        "mlp_sum": into("output_layer_norm"),
    },
    attention=AttentionRow(
        module="attention",
        value=Slot("attention.v_lin"),
        proj=Slot("attention.out_lin"),
        heads="attention.n_heads",
        post_norm="sa_layer_norm",
        maps=eager_maps("attention"),
    ),
    width="config.dim",
)

_ALBERT = Family(
    name="hf-albert",
    classes=("transformers.AlbertModel",),
    placement="post",
    blocks="encoder.albert_layer_groups",
    passes="config.num_hidden_layers",
    inner="albert_layers",
    embed=out("encoder.embedding_hidden_mapping_in"),
    points={
        "attn": out("attention.output_dropout"),
        "attn_sum": into("attention.LayerNorm"),
        "mid": out("attention.LayerNorm"),
        "mlp": out("ffn_output"),
        "mlp_sum": into("full_layer_layer_norm"),
    },
    attention=AttentionRow(
        module="attention",
        value=Slot("attention.value"),
        proj=Slot("attention.dense"),
        heads="attention.num_attention_heads",
        post_norm="attention.LayerNorm",
        result=out("attention.dense"),
        maps=eager_maps("attention"),
    ),
)

_MPNET = Family(
    name="hf-mpnet",
    classes=("transformers.MPNetModel",),
    placement="post",
    blocks="encoder.layer",
    embed=out("embeddings"),
    points={
        "attn": out("attention.dropout"),
        "attn_sum": into("attention.LayerNorm"),
        "mid": out("attention.LayerNorm"),
        "mlp": out("output.dropout"),
        "mlp_sum": into("output.LayerNorm"),
    },
    attention=AttentionRow(
        module="attention.attn",
        value=Slot("attention.attn.v"),
        proj=Slot("attention.attn.o"),
        heads="attention.attn.num_attention_heads",
        post_norm="attention.LayerNorm",
        maps=Maps(into("attention.attn.dropout")),
    ),
)

_GPT2 = Family(
    name="hf-gpt2",
    classes=("transformers.GPT2Model",),
    blocks="h",
    when={"crossattention": None},
    embed=out("drop"),
    points={
        "norm1": out("ln_1"),
        "attn": out("attn"),
        "mid": into("ln_2"),
        "norm2": out("ln_2"),
        "mlp": out("mlp"),
    },
    final_norm=out("ln_f"),
    attention=AttentionRow(
        module="attn",
        value=Slot("attn.c_attn", part=2, of=3, transposed=True),
        proj=Slot("attn.c_proj", transposed=True),
        heads="attn.num_heads",
        norm="ln_1",
        maps=eager_maps("attn"),
    ),
    causal=True,
)

_LLAMA = Family(
    name="hf-llama",
    classes=("transformers.LlamaModel", "transformers.MistralModel"),
    blocks="layers",
    embed=out("embed_tokens"),
    points={
        "norm1": out("input_layernorm"),
        "attn": out("self_attn"),
        "mid": into("post_attention_layernorm"),
        "norm2": out("post_attention_layernorm"),
        "mlp": out("mlp"),
    },
    final_norm=out("norm"),
    attention=AttentionRow(
        module="self_attn",
        value=Slot("self_attn.v_proj"),
        proj=Slot("self_attn.o_proj"),
        heads="self_attn.config.num_attention_heads",
        kv_heads="self_attn.config.num_key_value_heads",
        norm="input_layernorm",
        maps=eager_maps("self_attn"),
    ),
    causal="self_attn.is_causal",
)
assert _LLAMA.attention is not None

_QWEN = replace(_LLAMA, name="hf-qwen", classes=("transformers.Qwen2Model", "transformers.Qwen3Model"))
_SCALED = out("embed_tokens", needs="embed_scale")
_GEMMA = replace(
    _LLAMA,
    name="hf-gemma",
    classes=("transformers.GemmaModel",),
    embed=_SCALED,
    attention=replace(_LLAMA.attention, norm_offset=1.0),
)
_GEMMA2 = replace(
    _LLAMA,
    name="hf-gemma2",
    classes=("transformers.Gemma2Model", "transformers.Gemma3TextModel"),
    embed=_SCALED,
    points={
        "norm1": out("input_layernorm"),
        "attn": out("post_attention_layernorm"),
        "mid": into("pre_feedforward_layernorm"),
        "norm2": out("pre_feedforward_layernorm"),
        "mlp": out("post_feedforward_layernorm"),
    },
    attention=replace(_LLAMA.attention, norm_offset=1.0, out_norm="post_attention_layernorm"),
)

# The first block has no attention norm (the embedding is already normalised): an Identity stands there.
_MODERNBERT = Family(
    name="hf-modernbert",
    classes=("transformers.ModernBertModel",),
    blocks="layers",
    embed=out("embeddings"),
    points={
        "norm1": out("attn_norm"),
        "attn": out("attn"),
        "mid": into("mlp_norm"),
        "norm2": out("mlp_norm"),
        "mlp": out("mlp"),
    },
    final_norm=out("final_norm"),
    attention=AttentionRow(
        module="attn",
        value=Slot("attn.Wqkv", part=2, of=3),
        proj=Slot("attn.Wo"),
        heads=("attn.config.num_attention_heads", "attn.num_heads"),
        norm="attn_norm",
        maps=replace(eager_maps("attn"), call_with={"output_attentions": True}),  # first releases ask for it
    ),
)

FAMILIES: tuple[Family, ...] = (
    _BERT,
    _ROBERTA,
    _DISTILBERT,
    _ALBERT,
    _MPNET,
    _MODERNBERT,
    _GPT2,
    _LLAMA,
    _QWEN,
    _GEMMA,
    _GEMMA2,
)

REFUSED: tuple[Refusal, ...] = (
    Refusal(
        (
            "transformers.GPTNeoXModel",
            "transformers.GPTJModel",
            "transformers.PhiModel",
            "transformers.FalconModel",
            "transformers.CohereModel",
        ),
        "adds attention and MLP in one sum (parallel residual), so the stream between them (mid) does not "
        "exist and smoothing cannot be told apart by kind",
    ),
)
