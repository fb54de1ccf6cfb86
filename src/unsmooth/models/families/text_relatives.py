"""Rows for BERT's relatives that normalise before each branch, or whose block has Llama's names."""

from __future__ import annotations

from dataclasses import replace

from unsmooth.models.families.text import BERT
from unsmooth.models.family import AttentionRow, Family, Maps, Slot, eager_maps
from unsmooth.models.taps import into, out

assert BERT.attention is not None
# Pre-norm in BERT's clothes: the normalisations stand where BERT has none.
_ESM = replace(
    BERT,
    name="hf-esm",
    classes=("transformers.EsmModel",),
    placement="pre",
    points={
        "norm1": out("attention.LayerNorm"),
        "attn": out("attention.output.dropout"),
        "mid": into("LayerNorm"),
        "norm2": out("LayerNorm"),
        "mlp": out("output.dropout"),
    },
    final_norm=out("encoder.emb_layer_norm_after"),
    attention=replace(BERT.attention, norm="attention.LayerNorm", post_norm=()),
)
assert _ESM.attention is not None
_XLM_ROBERTA_XL = replace(
    _ESM,
    name="hf-xlm-roberta-xl",
    classes=("transformers.XLMRobertaXLModel",),
    points={**_ESM.points, "norm1": out("attention.self_attn_layer_norm"), "mlp": out("output.dense")},
    final_norm=out("encoder.LayerNorm"),
    attention=replace(_ESM.attention, norm="attention.self_attn_layer_norm"),
)
_ROBERTA_PRE = replace(
    _ESM,
    name="hf-roberta-prelayernorm",
    classes=("transformers.RobertaPreLayerNormModel",),
    points={**_ESM.points, "mid": into("intermediate.LayerNorm"), "norm2": out("intermediate.LayerNorm")},
    final_norm=out("LayerNorm"),
)
_MEGATRON_BERT = replace(
    _ESM,
    name="hf-megatron-bert",
    classes=("transformers.MegatronBertModel",),
    points={**_ESM.points, "norm1": out("attention.ln"), "mid": into("ln"), "norm2": out("ln")},
    final_norm=out("encoder.ln"),
    attention=replace(_ESM.attention, norm="attention.ln", maps=Maps(into("attention.self.dropout"))),
    causal="is_decoder",
)

_NOMIC = Family(
    name="hf-nomic-bert",
    classes=("transformers.NomicBertModel", "transformers.JinaEmbeddingsV3Model", "transformers.GteModel"),
    placement="post",
    blocks="layers",
    embed=out("embeddings"),
    points={
        "attn": out("post_attention_dropout"),
        "attn_sum": into("post_attention_layernorm"),
        "mid": out("post_attention_layernorm"),
        "mlp": out("post_mlp_dropout"),
        "mlp_sum": into("post_mlp_layernorm"),
    },
    attention=AttentionRow(
        module="self_attn",
        value=Slot("self_attn.v_proj"),
        proj=Slot("self_attn.o_proj"),
        heads="self_attn.config.num_attention_heads",
        post_norm="post_attention_layernorm",
        maps=eager_maps("self_attn"),
    ),
)

FAMILIES: tuple[Family, ...] = (_ESM, _XLM_ROBERTA_XL, _ROBERTA_PRE, _MEGATRON_BERT, _NOMIC)
