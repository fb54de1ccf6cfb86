"""Rows for decoders with parallel residuals, x + attn(norm(x)) + mlp(norm(x)), and for their sequential variants."""

from __future__ import annotations

from unsmooth.models.family import AttentionRow, Family, Maps, Slot, eager_maps, hf
from unsmooth.models.taps import into, out

# Pythia and its relatives; `use_parallel_residual=False` is an ordinary pre-norm block of the same modules.
_NEOX = Family(
    name="hf-gpt-neox",
    classes=hf("GPTNeoXModel"),
    placement="parallel",
    blocks="layers",
    when={"use_parallel_residual": True},
    embed=out("emb_dropout"),
    points={
        "norm1": out("input_layernorm"),
        "attn": out("post_attention_dropout"),
        "norm2": out("post_attention_layernorm"),
        "mlp": out("post_mlp_dropout"),
    },
    final_norm=out("final_layer_norm"),
    attention=AttentionRow(
        module="attention",
        value=Slot("attention.query_key_value", part=-1, groups="kv_heads"),
        proj=Slot("attention.dense"),
        heads="attention.config.num_attention_heads",
        norm="input_layernorm",
        maps=eager_maps("attention"),
    ),
    causal=True,
)
_NEOX_SEQUENTIAL = _NEOX.like(
    "hf-gpt-neox-sequential",
    placement="pre",
    when={"use_parallel_residual": False},
    points={"mid": into("post_attention_layernorm")},
)

_GPTJ = Family(
    name="hf-gptj",
    classes=hf("GPTJModel"),
    placement="parallel-shared",
    blocks="h",
    embed=out("drop"),
    points={"norm1": out("ln_1"), "attn": out("attn"), "mlp": out("mlp")},
    final_norm=out("ln_f"),
    attention=AttentionRow(
        module="attn",
        value=Slot("attn.v_proj"),
        proj=Slot("attn.out_proj"),
        heads="attn.num_attention_heads",
        norm="ln_1",
        maps=Maps(into("attn.attn_dropout")),
    ),
    width="embed_dim",
    causal=True,
)
# Of each of the four devices it was trained on: queries, values, keys.
_CODEGEN = _GPTJ.like(
    "hf-codegen", hf("CodeGenModel"), attention={"value": Slot("attn.qkv_proj", part=1, of=3, groups=4)}
)

_PHI = Family(
    name="hf-phi",
    classes=hf("PhiModel"),
    placement="parallel-shared",
    blocks="layers",
    embed=out("embed_dropout"),
    points={
        "norm1": out("input_layernorm"),
        "attn": out("resid_dropout", 1, of=2),
        "mlp": out("resid_dropout", 2, of=2),
    },
    final_norm=out("final_layernorm"),
    attention=AttentionRow(
        module="self_attn",
        value=Slot("self_attn.v_proj"),
        proj=Slot("self_attn.dense"),
        heads="self_attn.config.num_attention_heads",
        kv_heads="self_attn.config.num_key_value_heads",
        norm="input_layernorm",
        maps=eager_maps("self_attn"),
    ),
    causal=True,
)
_COHERE = _PHI.like(
    "hf-cohere",
    hf("CohereModel Cohere2Model Cohere2MoeModel"),
    embed=out("embed_tokens"),
    points={"attn": out("self_attn"), "mlp": out("mlp")},
    final_norm=out("norm"),
    attention={"proj": Slot("self_attn.o_proj")},
)
_STABLELM_PARALLEL = _COHERE.like(
    "hf-stablelm-parallel", hf("StableLmModel"), when={"use_parallel_residual": True}, points={"mlp": out("dropout")}
)
_STABLELM = _STABLELM_PARALLEL.like(
    "hf-stablelm",
    placement="pre",
    when={"use_parallel_residual": False},
    points={"mid": into("post_attention_layernorm"), "norm2": out("post_attention_layernorm")},
)

# The sum is made inside the MLP's output, and its dropout is a function. Multi-query, grouped and per-head layouts of
# the fused weight are one: after the queries of every value head stand its key and its value.
_FALCON = Family(
    name="hf-falcon",
    classes=hf("FalconModel"),
    placement="parallel-shared",
    blocks="h",
    when={"config.parallel_attn": True, "config.alibi": False, "ln_attn": None},
    embed=out("word_embeddings"),
    points={"norm1": out("input_layernorm"), "attn": out("self_attention"), "mlp": out("mlp", copied=True)},
    final_norm=out("ln_f"),
    attention=AttentionRow(
        module="self_attention",
        value=Slot("self_attention.query_key_value", part=-1, groups="kv_heads"),
        proj=Slot("self_attention.dense"),
        heads="self_attention.num_heads",
        kv_heads="self_attention.num_kv_heads",
        norm="input_layernorm",
        maps=eager_maps("self_attention"),
    ),
    causal=True,
    eval_only=("attn", "mlp"),
)
# 40B and 180B
_FALCON_TWO_NORMS = _FALCON.like(
    "hf-falcon-two-norms",
    placement="parallel",
    when={"config.parallel_attn": True, "config.alibi": False, "config.num_ln_in_parallel_attn": 2},
    points={"norm1": out("ln_attn"), "norm2": out("ln_mlp")},
    attention={"norm": "ln_attn"},
)
_FALCON_SEQUENTIAL = _FALCON.like(
    "hf-falcon-sequential",
    placement="pre",
    when={"config.parallel_attn": False, "config.alibi": False},
    points={"mid": into("post_attention_layernorm"), "norm2": out("post_attention_layernorm"), "mlp": out("mlp")},
)
# RefinedWeb's. Its eager attention adds the position bias a second time, so switching to it would show the matrices of
# another model: they are shown only where the model was loaded with it.
_FALCON_ALIBI = _FALCON_SEQUENTIAL.like(
    "hf-falcon-alibi",
    when={"config.parallel_attn": False, "config.alibi": True},
    attention={"maps": Maps(out("self_attention", item=1))},
)
