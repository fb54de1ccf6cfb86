"""Rows for Hugging Face's text encoders."""

from __future__ import annotations

from dataclasses import replace

from unsmooth.models.family import AttentionRow, Family, Maps, Slot, eager_maps
from unsmooth.models.taps import into, out

BERT = Family(
    name="hf-bert",
    classes=(
        "transformers.BertModel",
        "transformers.BertGenerationEncoder",
        "transformers.ErnieModel",
        "transformers.LayoutLMModel",
        "transformers.MarkupLMModel",
        "transformers.SplinterModel",
        "transformers.RoCBertModel",
        "transformers.ChineseCLIPTextModel",
    ),
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
_ROBERTA = replace(
    BERT,
    name="hf-roberta",
    classes=(
        "transformers.RobertaModel",
        "transformers.XLMRobertaModel",
        "transformers.CamembertModel",
        "transformers.Data2VecTextModel",
    ),
)
_ELECTRA = replace(
    BERT,
    name="hf-electra",
    classes=("transformers.ElectraModel",),
    embed=(out("embeddings_project"), out("embeddings")),
)
_ROFORMER = replace(
    _ELECTRA,
    name="hf-roformer",
    classes=("transformers.RoFormerModel",),
    when={**BERT.when, "attention.self.rotary_value": False},  # else a value is turned by its position
)
_LAYOUTLMV3 = replace(  # a picture's patches join the words' embedding, which then is normalised again
    BERT,
    name="hf-layoutlmv3",
    classes=("transformers.LayoutLMv3Model",),
    embed=(),
    pictures=1,
)
_REMBERT = replace(
    BERT,
    name="hf-rembert",
    classes=("transformers.RemBertModel",),
    embed=out("encoder.embedding_hidden_mapping_in"),
    causal="is_decoder",
)
assert BERT.attention is not None
_TAPAS = replace(  # its attention knows one implementation, which returns the matrix only when asked
    BERT,
    name="hf-tapas",
    classes=("transformers.TapasModel", "transformers.VisualBertModel"),
    pictures=0,
    attention=replace(BERT.attention, maps=Maps(into("attention.self.dropout"))),
    causal=False,
)
_BIG_BIRD = replace(
    BERT,
    name="hf-big-bird",
    classes=("transformers.BigBirdModel",),
    when={**BERT.when, "attention_type": "original_full"},  # else it attends between blocks of tokens
    causal="is_decoder",
)
DEBERTA_V2 = replace(
    BERT,
    name="hf-deberta-v2",
    classes=("transformers.DebertaV2Model",),
    attention=replace(
        BERT.attention,
        value=Slot("attention.self.value_proj"),
        maps=Maps(into("attention.self.dropout")),
    ),
    causal=False,
)
assert DEBERTA_V2.attention is not None
_DEBERTA = replace(  # q, k and v of a head stand side by side in one weight; the bias of the values beside it
    DEBERTA_V2,
    name="hf-deberta",
    classes=("transformers.DebertaModel",),
    attention=replace(
        DEBERTA_V2.attention,
        value=Slot(
            "attention.self",
            part=-1,
            groups="kv_heads",
            weight="in_proj.weight",
            bias="v_bias",
            bias_fused=False,
        ),
        nonlinear=("attention.self.head_weights_proj",),
    ),
)
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

assert _MODERNBERT.attention is not None
_MODERNBERT_DECODER = replace(
    _MODERNBERT,
    name="hf-modernbert-decoder",
    classes=("transformers.ModernBertDecoderModel",),
    attention=replace(_MODERNBERT.attention, value=Slot("attn.v_proj"), maps=eager_maps("attn")),
    causal=True,
)

FAMILIES: tuple[Family, ...] = (
    BERT,
    _ROBERTA,
    _ELECTRA,
    _ROFORMER,
    _LAYOUTLMV3,
    _REMBERT,
    _TAPAS,
    _BIG_BIRD,
    DEBERTA_V2,
    _DEBERTA,
    _DISTILBERT,
    _ALBERT,
    _MPNET,
    _MODERNBERT,
    _MODERNBERT_DECODER,
)
