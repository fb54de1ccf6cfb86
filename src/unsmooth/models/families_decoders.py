"""Rows for Hugging Face's decoder-only language models, and encoders built like them."""

from __future__ import annotations

from dataclasses import replace

from unsmooth.models.families_encoder_decoder import WHISPER_ENCODER
from unsmooth.models.family import AttentionRow, Family, Refusal, Slot, eager_maps
from unsmooth.models.taps import into, out

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

assert _GPT2.attention is not None
_GPT_NEO = replace(
    _GPT2,
    name="hf-gpt-neo",
    classes=("transformers.GPTNeoModel",),
    attention=replace(
        _GPT2.attention,
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

_LLAMA = Family(
    name="hf-llama",
    classes=(
        "transformers.LlamaModel",
        "transformers.MistralModel",
        "transformers.MixtralModel",
        "transformers.SmolLM3Model",
        "transformers.EuroBertModel",
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
assert _LLAMA.attention is not None

_QWEN = replace(
    _LLAMA,
    name="hf-qwen",
    classes=(
        "transformers.Qwen2Model",
        "transformers.Qwen3Model",
        "transformers.Qwen2MoeModel",
        "transformers.Qwen3MoeModel",
    ),
)
# x + norm(attn(x)): the normalisation is on the branch's output, its input is the bare stream.
_OLMO2 = replace(
    _LLAMA,
    name="hf-olmo2",
    classes=("transformers.Olmo2Model", "transformers.Olmo3Model"),
    points={
        "attn": out("post_attention_layernorm"),
        "mid": into("mlp"),
        "mlp": out("post_feedforward_layernorm"),
    },
    attention=replace(_LLAMA.attention, norm=(), out_norm="post_attention_layernorm"),
)
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

FAMILIES: tuple[Family, ...] = (
    _GPT2,
    _GPT_NEO,
    _OPT,
    _OPT_POST,
    _LLAMA,
    _QWEN,
    _OLMO2,
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
            "transformers.Cohere2Model",
        ),
        "adds attention and MLP in one sum (parallel residual), so the stream between them (mid) does not "
        "exist and smoothing cannot be told apart by kind (variants that add them one after the other have no row)",
    ),
)
