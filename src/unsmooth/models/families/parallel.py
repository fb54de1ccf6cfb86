"""Rows for decoders with parallel residuals, x + attn(norm(x)) + mlp(norm(x)), and for their sequential variants."""

from __future__ import annotations

from dataclasses import replace

from unsmooth.models.family import AttentionRow, Family, Maps, Slot, eager_maps
from unsmooth.models.taps import into, out

# Pythia and its relatives; `use_parallel_residual=False` is an ordinary pre-norm block of the same modules.
_NEOX = Family(
    name="hf-gpt-neox",
    classes=("transformers.GPTNeoXModel",),
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
_NEOX_SEQUENTIAL = replace(
    _NEOX,
    name="hf-gpt-neox-sequential",
    placement="pre",
    when={"use_parallel_residual": False},
    points={**_NEOX.points, "mid": into("post_attention_layernorm")},
)

_GPTJ = Family(
    name="hf-gptj",
    classes=("transformers.GPTJModel",),
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
assert _GPTJ.attention is not None
_CODEGEN = replace(
    _GPTJ,
    name="hf-codegen",
    classes=("transformers.CodeGenModel",),
    # Of each of the four devices it was trained on: queries, values, keys.
    attention=replace(_GPTJ.attention, value=Slot("attn.qkv_proj", part=1, of=3, groups=4)),
)

_PHI = Family(
    name="hf-phi",
    classes=("transformers.PhiModel",),
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
assert _PHI.attention is not None
_COHERE = replace(
    _PHI,
    name="hf-cohere",
    classes=("transformers.CohereModel", "transformers.Cohere2Model"),
    embed=out("embed_tokens"),
    points={"norm1": out("input_layernorm"), "attn": out("self_attn"), "mlp": out("mlp")},
    final_norm=out("norm"),
    attention=replace(_PHI.attention, proj=Slot("self_attn.o_proj")),
)
_STABLELM_PARALLEL = replace(
    _COHERE,
    name="hf-stablelm-parallel",
    classes=("transformers.StableLmModel",),
    when={"use_parallel_residual": True},
    points={**_COHERE.points, "mlp": out("dropout")},
)
_STABLELM = replace(
    _STABLELM_PARALLEL,
    name="hf-stablelm",
    placement="pre",
    when={"use_parallel_residual": False},
    points={
        **_STABLELM_PARALLEL.points,
        "mid": into("post_attention_layernorm"),
        "norm2": out("post_attention_layernorm"),
    },
)

# The sum is made inside the MLP's output, and its dropout is a function. Multi-query, grouped and per-head layouts of
# the fused weight are one: after the queries of every value head stand its key and its value.
_FALCON = Family(
    name="hf-falcon",
    classes=("transformers.FalconModel",),
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
assert _FALCON.attention is not None
_FALCON_TWO_NORMS = replace(  # 40B and 180B
    _FALCON,
    name="hf-falcon-two-norms",
    placement="parallel",
    when={"config.parallel_attn": True, "config.alibi": False, "config.num_ln_in_parallel_attn": 2},
    points={**_FALCON.points, "norm1": out("ln_attn"), "norm2": out("ln_mlp")},
    attention=replace(_FALCON.attention, norm="ln_attn"),
)
_FALCON_SEQUENTIAL = replace(
    _FALCON,
    name="hf-falcon-sequential",
    placement="pre",
    when={"config.parallel_attn": False, "config.alibi": False},
    points={
        **_FALCON.points,
        "mid": into("post_attention_layernorm"),
        "norm2": out("post_attention_layernorm"),
        "mlp": out("mlp"),
    },
)
# RefinedWeb's. Its eager attention adds the position bias a second time, so switching to it would show the matrices of
# another model: they are shown only where the model was loaded with it.
_FALCON_ALIBI = replace(
    _FALCON_SEQUENTIAL,
    name="hf-falcon-alibi",
    when={"config.parallel_attn": False, "config.alibi": True},
    attention=replace(_FALCON.attention, maps=Maps(out("self_attention", item=1))),
)

FAMILIES: tuple[Family, ...] = (
    _NEOX,
    _NEOX_SEQUENTIAL,
    _GPTJ,
    _CODEGEN,
    _PHI,
    _COHERE,
    _STABLELM,
    _STABLELM_PARALLEL,
    _FALCON,
    _FALCON_TWO_NORMS,
    _FALCON_SEQUENTIAL,
    _FALCON_ALIBI,
)
