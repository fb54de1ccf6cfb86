"""Rows for Hugging Face's decoder-only language models, and encoders built like them."""

from __future__ import annotations

from dataclasses import replace

from unsmooth.models.families.encoder_decoder import WHISPER_ENCODER
from unsmooth.models.family import AttentionRow, Family, Slot, eager_maps
from unsmooth.models.taps import into, out

GPT2 = Family(
    name="hf-gpt2",
    classes=("transformers.GPT2Model", "transformers.ImageGPTModel"),
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

assert GPT2.attention is not None
_GPT_NEO = replace(
    GPT2,
    name="hf-gpt-neo",
    classes=("transformers.GPTNeoModel",),
    attention=replace(
        GPT2.attention,
        module="attn.attention",
        value=Slot("attn.attention.v_proj"),
        proj=Slot("attn.attention.out_proj"),
        heads="attn.attention.num_heads",
        maps=eager_maps("attn.attention"),
    ),
)

_OPT = replace(  # the block of Whisper and its relatives, causal
    WHISPER_ENCODER,
    name="hf-opt",
    classes=("transformers.OPTDecoder",),
    when={"do_layer_norm_before": True},
    final_norm=out("final_layer_norm"),
    width=Family.width,
    causal=True,
)
assert _OPT.attention is not None
_OPT_POST = replace(  # OPT-350m alone
    _OPT,
    name="hf-opt-post",
    placement="post",
    when={"do_layer_norm_before": False},
    points={
        "attn": out("self_attn"),
        "attn_sum": into("self_attn_layer_norm"),
        "mid": out("self_attn_layer_norm"),
        "mlp": out("fc2"),
        "mlp_sum": into("final_layer_norm"),
    },
    final_norm=(),
    attention=replace(_OPT.attention, norm=(), post_norm="self_attn_layer_norm"),
)

_XGLM = replace(
    WHISPER_ENCODER,
    name="hf-xglm",
    classes=("transformers.XGLMModel", "transformers.BioGptModel"),
    when={"encoder_attn": None},
    width=Family.width,
    causal=True,
)

LLAMA = Family(
    name="hf-llama",
    classes=(
        "transformers.LlamaModel",
        "transformers.MistralModel",
        "transformers.MixtralModel",
        "transformers.SmolLM3Model",
        "transformers.EuroBertModel",
        "transformers.Starcoder2Model",
        "transformers.PhimoeModel",
        "transformers.GlmModel",
        "transformers.Glm4MoeModel",
        "transformers.OlmoeModel",
        "transformers.HeliumModel",
        "transformers.ArceeModel",
        "transformers.SeedOssModel",
        "transformers.Ernie4_5Model",
        "transformers.Ernie4_5_MoeModel",
        "transformers.HunYuanDenseV1Model",
        "transformers.MinistralModel",
        "transformers.Ministral3Model",
        "transformers.MiniMaxM2Model",
        "transformers.CwmModel",
        "transformers.Jais2Model",
        "transformers.HunYuanMoEV1Model",
        "transformers.Dots1Model",
        "transformers.AriaTextModel",
        "transformers.SolarOpenModel",
        "transformers.ExaoneMoeModel",
    ),
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
assert LLAMA.attention is not None

_QWEN = replace(
    LLAMA,
    name="hf-qwen",
    classes=(
        "transformers.Qwen2Model",
        "transformers.Qwen3Model",
        "transformers.Qwen2MoeModel",
        "transformers.Qwen3MoeModel",
        "transformers.Qwen2VLTextModel",
        "transformers.Qwen2_5_VLTextModel",
    ),
)
_NEMOTRON = replace(  # its LayerNorm multiplies by 1 + weight
    LLAMA,
    name="hf-nemotron",
    classes=("transformers.NemotronModel",),
    attention=replace(LLAMA.attention, norm_offset=1.0),
)
_OLMO = replace(
    LLAMA,
    name="hf-olmo",
    classes=("transformers.OlmoModel",),
    attention=replace(LLAMA.attention, norm_eps=1e-5, nonlinear=("self_attn.config.clip_qkv",)),
)
# Every branch is multiplied by a number before the sum, and the embedding by another.
_GRANITE = replace(
    LLAMA,
    name="hf-granite",
    classes=("transformers.GraniteModel", "transformers.GraniteMoeModel"),
    embed=out("embed_tokens", times="embedding_multiplier"),
    points={
        **LLAMA.points,
        "attn": out("self_attn", times="residual_multiplier"),
        "mlp": (out("mlp", times="residual_multiplier"), out("block_sparse_moe", times="residual_multiplier")),
    },
    attention=replace(LLAMA.attention, scale="residual_multiplier"),
)
_APERTUS = replace(
    LLAMA,
    name="hf-apertus",
    classes=("transformers.ApertusModel",),
    points={
        **LLAMA.points,
        "norm1": out("attention_layernorm"),
        "mid": into("feedforward_layernorm"),
        "norm2": out("feedforward_layernorm"),
    },
    attention=replace(LLAMA.attention, norm="attention_layernorm"),
)
_LLAMA4 = replace(
    LLAMA,
    name="hf-llama4",
    classes=("transformers.Llama4TextModel",),
    points={**LLAMA.points, "mlp": out("feed_forward")},
)
_GPT_OSS = replace(
    LLAMA,
    name="hf-gpt-oss",
    classes=("transformers.GptOssModel",),
    attention=replace(LLAMA.attention, sink="self_attn.sinks"),
)
# Measured, with matrices, but not explained: a normalisation stands among the maps that would be W_V W_proj.
_DEEPSEEK = replace(
    LLAMA,
    name="hf-deepseek",
    classes=("transformers.DeepseekV2Model", "transformers.DeepseekV3Model", "transformers.Glm4MoeLiteModel"),
    attention=replace(LLAMA.attention, value=Slot("self_attn.kv_b_proj"), nonlinear=("self_attn.kv_a_layernorm",)),
)
_BITNET = replace(
    LLAMA,
    name="hf-bitnet",
    classes=("transformers.BitNetModel",),
    attention=replace(LLAMA.attention, nonlinear=("self_attn.attn_sub_norm",)),
)
_GLM4 = replace(  # normalised before and after each branch
    LLAMA,
    name="hf-glm4",
    classes=("transformers.Glm4Model",),
    points={**LLAMA.points, "attn": out("post_self_attn_layernorm"), "mlp": out("post_mlp_layernorm")},
    attention=replace(LLAMA.attention, out_norm="post_self_attn_layernorm"),
)
# x + norm(attn(x)): the normalisation is on the branch's output, its input is the bare stream.
_OLMO2 = replace(
    LLAMA,
    name="hf-olmo2",
    classes=(
        "transformers.Olmo2Model",
        "transformers.Olmo3Model",
        "transformers.FlexOlmoModel",
        "transformers.Exaone4Model",
    ),
    points={
        "attn": out("post_attention_layernorm"),
        "mid": into("mlp"),
        "mlp": out("post_feedforward_layernorm"),
    },
    attention=replace(LLAMA.attention, norm=(), out_norm="post_attention_layernorm"),
)
_NANOCHAT = replace(  # one norm, without weights, for the embedding and for the end
    LLAMA,
    name="hf-nanochat",
    classes=("transformers.NanoChatModel",),
    embed=out("norm", 1, of=2),
    final_norm=out("norm", 2, of=2),
)
FAMILIES: tuple[Family, ...] = (
    GPT2, _GPT_NEO, _OPT, _OPT_POST, _XGLM, LLAMA, _QWEN, _NEMOTRON, _OLMO, _GRANITE, _APERTUS, _LLAMA4, _GPT_OSS,
    _DEEPSEEK, _BITNET, _GLM4, _OLMO2, _NANOCHAT,
)  # fmt: skip
