"""Rows for BERT's relatives that normalise before each branch, or whose block has Llama's names."""

from __future__ import annotations

from unsmooth.models.families.text import BERT
from unsmooth.models.family import AttentionRow, Family, Maps, Slot, eager_maps, hf, post_norm, pre_norm
from unsmooth.models.taps import into, out

# Pre-norm in BERT's clothes: the normalisations stand where BERT has none.
_ESM = BERT.like(
    "hf-esm",
    hf("EsmModel"),
    placement="pre",
    points=pre_norm("attention.LayerNorm", "attention.output.dropout", "LayerNorm", "output.dropout"),
    final_norm=out("encoder.emb_layer_norm_after"),
    attention={"norm": "attention.LayerNorm", "post_norm": ()},
)
_XLM_ROBERTA_XL = _ESM.like(
    "hf-xlm-roberta-xl",
    hf("XLMRobertaXLModel"),
    points={"norm1": out("attention.self_attn_layer_norm"), "mlp": out("output.dense")},
    final_norm=out("encoder.LayerNorm"),
    attention={"norm": "attention.self_attn_layer_norm"},
)
_ROBERTA_PRE = _ESM.like(
    "hf-roberta-prelayernorm",
    hf("RobertaPreLayerNormModel"),
    points={"mid": into("intermediate.LayerNorm"), "norm2": out("intermediate.LayerNorm")},
    final_norm=out("LayerNorm"),
)
_MEGATRON_BERT = _ESM.like(
    "hf-megatron-bert",
    hf("MegatronBertModel"),
    points={"norm1": out("attention.ln"), "mid": into("ln"), "norm2": out("ln")},
    final_norm=out("encoder.ln"),
    attention={"norm": "attention.ln", "maps": Maps(into("attention.self.dropout"))},
    causal="is_decoder",
)

_NOMIC = Family(
    name="hf-nomic-bert",
    classes=hf("NomicBertModel JinaEmbeddingsV3Model GteModel"),
    placement="post",
    blocks="layers",
    embed=out("embeddings"),
    points=post_norm("post_attention_dropout", "post_attention_layernorm", "post_mlp_dropout", "post_mlp_layernorm"),
    attention=AttentionRow(
        module="self_attn",
        value=Slot("self_attn.v_proj"),
        proj=Slot("self_attn.o_proj"),
        heads="self_attn.config.num_attention_heads",
        post_norm="post_attention_layernorm",
        maps=eager_maps("self_attn"),
    ),
)
