"""Small decoders: parallel residuals, fused weights of unequal or interleaved parts, and relatives of Llama."""

from __future__ import annotations

from typing import Any

from model_cases.builders import _EXPERTS, DECODER, F32, HEADS, LAYERS, TEXT, VOCAB, Case, D, hf, ids, padded, scripted

_TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_PLAIN = {**TEXT, **_TOKENS}
_GPT = {"n_layer": LAYERS, "n_embd": D, "n_head": HEADS, "n_positions": 32, "vocab_size": VOCAB, **_TOKENS}
_FALCON = {**_PLAIN, "alibi": False}
FALCON_RW = {**_FALCON, "alibi": True, "multi_query": False, "parallel_attn": False, "bias": True}
_LLAMA4 = {"head_dim": 8, "intermediate_size_mlp": D, "interleave_moe_layer_step": 2}
_GROUPS = {"n_routed_experts": 4, "n_group": 1, "topk_group": 1}
_MROPE = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}
_GRANITE = {"residual_multiplier": 0.22, "embedding_multiplier": 12.0, "attention_multiplier": 0.1}


def _case(name: str, family: str, model: str, grouped: bool = False, dtype: Any = None, **options: Any) -> Case:
    return Case(name, family, scripted(model, **options), padded, causal=True, grouped=grouped, norm_dtype=dtype)


PARALLEL_CASES = [
    _case("gpt-neox", "hf-gpt-neox", "GPTNeoX", **_PLAIN),
    Case("pythia-lm", "hf-gpt-neox", hf("GPTNeoX", wrap="GPTNeoXForCausalLM", **_PLAIN), ids, causal=True),
    _case("gpt-neox-no-bias", "hf-gpt-neox", "GPTNeoX", attention_bias=False, **_PLAIN),
    _case("gpt-neox-sequential", "hf-gpt-neox-sequential", "GPTNeoX", use_parallel_residual=False, **_PLAIN),
    _case("gptj", "hf-gptj", "GPTJ", rotary_dim=4, **_GPT),
    _case("codegen", "hf-codegen", "CodeGen", rotary_dim=4, **{**_GPT, "n_ctx": 32}),
    _case("phi", "hf-phi", "Phi", **_PLAIN),
    _case("phi-grouped", "hf-phi", "Phi", grouped=True, qk_layernorm=True, num_key_value_heads=2, **_PLAIN),
    _case("cohere", "hf-cohere", "Cohere", grouped=True, dtype=F32, **DECODER),
    _case("cohere-qk-norm", "hf-cohere", "Cohere", grouped=True, dtype=F32, use_qk_norm=True, **DECODER),
    _case("cohere2", "hf-cohere", "Cohere2", grouped=True, dtype=F32, sliding_window=4, **DECODER),
    _case("stablelm", "hf-stablelm", "StableLm", grouped=True, use_qkv_bias=True, **DECODER),
    _case("stablelm-parallel", "hf-stablelm-parallel", "StableLm", grouped=True, use_parallel_residual=True, **DECODER),
    _case("falcon-7b", "hf-falcon", "Falcon", grouped=True, **_FALCON),
    _case(
        "falcon-11b",
        "hf-falcon",
        "Falcon",
        grouped=True,
        new_decoder_architecture=True,
        num_ln_in_parallel_attn=1,
        num_kv_heads=2,
        bias=True,
        **_FALCON,
    ),
    _case(
        "falcon-40b",
        "hf-falcon-two-norms",
        "Falcon",
        grouped=True,
        new_decoder_architecture=True,
        num_kv_heads=2,
        **_FALCON,
    ),
    _case("falcon-sequential", "hf-falcon-sequential", "Falcon", grouped=True, parallel_attn=False, **_FALCON),
    _case("falcon-rw", "hf-falcon-alibi", "Falcon", attn_implementation="eager", **FALCON_RW),
]

FUSED_CASES = [
    _case("phi3", "hf-phi3", "Phi3", grouped=True, dtype=F32, **DECODER),
    _case("phi3-ungrouped", "hf-phi3", "Phi3", dtype=F32, **{**DECODER, "num_key_value_heads": HEADS}),
    _case("persimmon", "hf-persimmon", "Persimmon", **_PLAIN),
    _case("gpt-bigcode", "hf-gpt-bigcode", "GPTBigCode", grouped=True, **_GPT),
    _case("gpt-bigcode-multi-head", "hf-gpt-bigcode", "GPTBigCode", multi_query=False, **_GPT),
    _case("bloom", "hf-bloom", "Bloom", n_layer=LAYERS, hidden_size=D, n_head=HEADS, vocab_size=VOCAB, **_TOKENS),
    _case("mpt", "hf-mpt", "Mpt", n_layers=LAYERS, d_model=D, n_heads=HEADS, vocab_size=VOCAB, max_seq_len=32),
]

RELATIVES = [
    _case(name.lower(), family, name, grouped=True, dtype=dtype, **{**DECODER, **extra})
    for name, family, dtype, extra in (
        ("Starcoder2", "hf-llama", None, {"use_bias": True}),
        ("Phimoe", "hf-llama", None, _EXPERTS),
        ("Glm", "hf-llama", F32, {"head_dim": 8, "attention_bias": True}),
        ("Glm4", "hf-glm4", F32, {"head_dim": 8}),
        ("Olmoe", "hf-llama", F32, _EXPERTS),
        ("Helium", "hf-llama", F32, {"head_dim": 8}),
        ("Arcee", "hf-llama", F32, {}),
        ("SeedOss", "hf-llama", F32, {"head_dim": 12}),
        ("Ernie4_5", "hf-llama", F32, {"head_dim": 8}),
        ("HunYuanDenseV1", "hf-llama", F32, {"head_dim": 8}),
        ("Ministral", "hf-llama", F32, {"head_dim": 8, "sliding_window": 4}),
        ("Ministral3", "hf-llama", F32, {"head_dim": 8}),
        ("Glm4Moe", "hf-llama", F32, _EXPERTS),
        ("Ernie4_5_Moe", "hf-llama", F32, _EXPERTS),
        ("Llama4Text", "hf-llama4", F32, {**_EXPERTS, **_LLAMA4}),
        ("Nemotron", "hf-nemotron", F32, {}),
        ("Olmo", "hf-olmo", F32, {}),
        ("Granite", "hf-granite", F32, _GRANITE),
        ("GraniteMoe", "hf-granite", F32, {**_EXPERTS, **_GRANITE}),
        ("Apertus", "hf-apertus", F32, {}),
        ("Exaone4", "hf-olmo2", F32, {"sliding_window": 4}),
        ("FlexOlmo", "hf-olmo2", F32, _EXPERTS),
        ("HunYuanMoEV1", "hf-llama", F32, {**_EXPERTS, "head_dim": 8}),
        ("SolarOpen", "hf-llama", F32, {**_EXPERTS, **_GROUPS, "head_dim": 8}),
        ("ExaoneMoe", "hf-llama", F32, {**_EXPERTS, **_GROUPS, "sliding_window": 4}),
        ("Dots1", "hf-llama", F32, {**_EXPERTS, **_GROUPS, "n_shared_experts": 1}),
        ("Qwen2VLText", "hf-qwen", F32, {"rope_parameters": _MROPE}),
        ("Qwen2_5_VLText", "hf-qwen", F32, {"rope_parameters": _MROPE}),
        ("NanoChat", "hf-nanochat", F32, {}),
        ("VaultGemma", "hf-vault-gemma", F32, {"head_dim": 8, "sliding_window": 4}),
        ("HYV3", "hf-llama", F32, {**_EXPERTS, "head_dim": 8}),
        ("Mellum", "hf-llama", F32, {**_EXPERTS, "head_dim": 8}),
        ("Molmo2Text", "hf-llama", F32, {"head_dim": 8}),
        ("GraniteDoclingText", "hf-granite", F32, _GRANITE),
        ("Kolibri1", "hf-glm4", F32, {**_EXPERTS, "head_dim": 8}),
        ("Cohere2Moe", "hf-cohere", F32, {**_EXPERTS, "head_dim": 8}),
    )
]

SINK = Case(
    "gpt-oss",
    "hf-gpt-oss",
    hf("GptOss", **{**DECODER, **_EXPERTS, "head_dim": 8, "sliding_window": 4}),
    padded,
    causal=True,
    norm_dtype=F32,
    grouped=True,
    sink=True,
)

OTHERS = [
    _case("openai-gpt", "hf-openai-gpt", "OpenAIGPT", afn="gelu", **_GPT),
    _case("ctrl", "hf-ctrl", "CTRL", dff=2 * D, **_GPT),
    _case("imagegpt", "hf-gpt2", "ImageGPT", **_GPT),
    _case("modernbert-decoder", "hf-modernbert-decoder", "ModernBertDecoder", local_attention=8, **_PLAIN),
]

#: Measured only.
DIFF_LLAMA = _case("diffllama", "hf-diffllama", "DiffLlama", grouped=True, dtype=F32, **DECODER)

DECODER_CASES = [*PARALLEL_CASES, *FUSED_CASES, *RELATIVES, *OTHERS, SINK]

_MLA = {"kv_lora_rank": 8, "q_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 6, "v_head_dim": 10}
_MLA = {
    **DECODER,
    **_EXPERTS,
    **_MLA,
    "num_key_value_heads": HEADS,
    "n_routed_experts": 4,
    "n_group": 1,
    "topk_group": 1,
}
#: Measured, not explained: their attention is no sum of A X W_V W_proj.
MEASURED_CASES = [
    _case("deepseek-v2", "hf-deepseek", "DeepseekV2", dtype=F32, **_MLA),
    _case("deepseek-v3", "hf-deepseek", "DeepseekV3", dtype=F32, **_MLA),
    _case("glm4-moe-lite", "hf-deepseek", "Glm4MoeLite", dtype=F32, **_MLA),
    _case("bitnet", "hf-bitnet", "BitNet", grouped=True, dtype=F32, **DECODER),
]
