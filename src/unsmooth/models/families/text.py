"""Rows for Hugging Face's text encoders."""

from __future__ import annotations

from dataclasses import replace

from unsmooth.models.family import AttentionRow, Family, Maps, Slot, eager_maps, hf, post_norm, pre_norm
from unsmooth.models.taps import into, out

BERT = Family(
    name="hf-bert",
    classes=hf(
        "BertModel BertGenerationEncoder ErnieModel LayoutLMModel MarkupLMModel SplinterModel RoCBertModel "
        "ChineseCLIPTextModel AlignTextModel"
    ),
    placement="post",
    blocks="encoder.layer",
    embed=out("embeddings"),
    points=post_norm("attention.output.dropout", "attention.output.LayerNorm", "output.dropout", "output.LayerNorm"),
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
_ROBERTA = BERT.like("hf-roberta", hf("RobertaModel XLMRobertaModel CamembertModel Data2VecTextModel ClapTextModel"))
_ELECTRA = BERT.like("hf-electra", hf("ElectraModel"), embed=(out("embeddings_project"), out("embeddings")))
_ROFORMER = _ELECTRA.like(
    "hf-roformer",
    hf("RoFormerModel"),
    when={**BERT.when, "attention.self.rotary_value": False},  # else a value is turned by its position
)
# a picture's patches join the words' embedding, which then is normalised again
_LAYOUTLMV3 = BERT.like("hf-layoutlmv3", hf("LayoutLMv3Model"), embed=(), pictures=1)
_REMBERT = BERT.like(
    "hf-rembert", hf("RemBertModel"), embed=out("encoder.embedding_hidden_mapping_in"), causal="is_decoder"
)
# its attention knows one implementation, which returns the matrix only when asked
_TAPAS = BERT.like(
    "hf-tapas",
    hf("TapasModel VisualBertModel"),
    pictures=0,
    attention={"maps": Maps(into("attention.self.dropout"))},
    causal=False,
)
_BIG_BIRD = BERT.like(
    "hf-big-bird",
    hf("BigBirdModel"),
    when={**BERT.when, "attention_type": "original_full"},  # else it attends between blocks of tokens
    causal="is_decoder",
)
DEBERTA_V2 = BERT.like(
    "hf-deberta-v2",
    hf("DebertaV2Model"),
    attention={"value": Slot("attention.self.value_proj"), "maps": Maps(into("attention.self.dropout"))},
    causal=False,
)
# q, k and v of a head stand side by side in one weight; the bias of the values beside it
_DEBERTA = DEBERTA_V2.like(
    "hf-deberta",
    hf("DebertaModel"),
    attention={
        "value": Slot(
            "attention.self",
            part=-1,
            groups="kv_heads",
            weight="in_proj.weight",
            bias="v_bias",
            bias_fused=False,
        ),
        "nonlinear": ("attention.self.head_weights_proj",),
    },
)
_DISTILBERT = Family(
    name="hf-distilbert",
    classes=hf("DistilBertModel"),
    placement="post",
    blocks="transformer.layer",
    embed=out("embeddings"),
    points=post_norm("attention", "sa_layer_norm", "ffn", "output_layer_norm"),
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
    classes=hf("AlbertModel"),
    placement="post",
    blocks="encoder.albert_layer_groups",
    passes="config.num_hidden_layers",
    inner="albert_layers",
    embed=out("encoder.embedding_hidden_mapping_in"),
    points=post_norm("attention.output_dropout", "attention.LayerNorm", "ffn_output", "full_layer_layer_norm"),
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
    classes=hf("MPNetModel"),
    placement="post",
    blocks="encoder.layer",
    embed=out("embeddings"),
    points=post_norm("attention.dropout", "attention.LayerNorm", "output.dropout", "output.LayerNorm"),
    attention=AttentionRow(
        module="attention.attn",
        value=Slot("attention.attn.v"),
        proj=Slot("attention.attn.o"),
        heads="attention.attn.num_attention_heads",
        post_norm="attention.LayerNorm",
        maps=Maps(into("attention.attn.dropout")),
    ),
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

_MODERNBERT_DECODER = _MODERNBERT.like(
    "hf-modernbert-decoder",
    hf("ModernBertDecoderModel"),
    attention={"value": Slot("attn.v_proj"), "maps": eager_maps("attn")},
    causal=True,
)

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
