"""Rows for Hugging Face's decoder-only language models, and encoders built like them."""

from __future__ import annotations

from dataclasses import replace

from unsmooth.models.families.encoder_decoder import WHISPER_ENCODER
from unsmooth.models.family import AttentionRow, Family, Maps, Slot, eager_maps, hf, post_norm, pre_norm
from unsmooth.models.taps import into, out

GPT2 = Family(
    name="hf-gpt2",
    classes=hf("GPT2Model ImageGPTModel DecisionTransformerGPT2Model"),
    blocks="h",
    when={"crossattention": None},
    embed=out("drop"),
    points=pre_norm("ln_1", "attn", "ln_2", "mlp"),
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

_GPT_NEO = GPT2.like(
    "hf-gpt-neo",
    hf("GPTNeoModel"),
    attention={
        "module": "attn.attention",
        "value": Slot("attn.attention.v_proj"),
        "proj": Slot("attn.attention.out_proj"),
        "heads": "attn.attention.num_heads",
        "maps": eager_maps("attn.attention"),
    },
)

# the block of Whisper and its relatives, causal
_OPT = WHISPER_ENCODER.like(
    "hf-opt",
    hf("OPTDecoder"),
    when={"do_layer_norm_before": True},
    final_norm=out("final_layer_norm"),
    width=Family.width,
    causal=True,
)
# OPT-350m alone
_OPT_POST = _OPT.like(
    "hf-opt-post",
    placement="post",
    when={"do_layer_norm_before": False},
    points=post_norm("self_attn", "self_attn_layer_norm", "fc2", "final_layer_norm"),
    final_norm=(),
    attention={"norm": (), "post_norm": "self_attn_layer_norm"},
)

_XGLM = WHISPER_ENCODER.like(
    "hf-xglm", hf("XGLMModel BioGptModel"), when={"encoder_attn": None}, width=Family.width, causal=True
)

LLAMA = Family(
    name="hf-llama",
    classes=hf(
        "LlamaModel MistralModel MixtralModel SmolLM3Model EuroBertModel Starcoder2Model PhimoeModel GlmModel "
        "Glm4MoeModel OlmoeModel HeliumModel ArceeModel SeedOssModel Ernie4_5Model Ernie4_5_MoeModel "
        "HunYuanDenseV1Model MinistralModel Ministral3Model MiniMaxM2Model CwmModel Jais2Model "
        "HunYuanMoEV1Model Dots1Model AriaTextModel SolarOpenModel ExaoneMoeModel HYV3Model MellumModel "
        "Molmo2TextModel UltrabertModel"
    ),
    blocks="layers",
    embed=out("embed_tokens"),
    points=pre_norm("input_layernorm", "self_attn", "post_attention_layernorm", "mlp"),
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

_QWEN = LLAMA.like(
    "hf-qwen", hf("Qwen2Model Qwen3Model Qwen2MoeModel Qwen3MoeModel Qwen2VLTextModel Qwen2_5_VLTextModel")
)
# its LayerNorm multiplies by 1 + weight
_NEMOTRON = LLAMA.like("hf-nemotron", hf("NemotronModel"), attention={"norm_offset": 1.0})
_OLMO = LLAMA.like(
    "hf-olmo", hf("OlmoModel"), attention={"norm_eps": 1e-5, "nonlinear": ("self_attn.config.clip_qkv",)}
)
# Every branch is multiplied by a number before the sum, and the embedding by another.
_GRANITE = LLAMA.like(
    "hf-granite",
    hf("GraniteModel GraniteMoeModel GraniteDoclingTextModel"),
    embed=out("embed_tokens", times="embedding_multiplier"),
    points={
        "attn": out("self_attn", times="residual_multiplier"),
        "mlp": (out("mlp", times="residual_multiplier"), out("block_sparse_moe", times="residual_multiplier")),
    },
    attention={"scale": "residual_multiplier"},
)
_APERTUS = LLAMA.like(
    "hf-apertus",
    hf("ApertusModel"),
    points={
        "norm1": out("attention_layernorm"),
        "mid": into("feedforward_layernorm"),
        "norm2": out("feedforward_layernorm"),
    },
    attention={"norm": "attention_layernorm"},
)
_EMU3 = LLAMA.like(
    "hf-emu3", hf("Emu3TextModel"), points={"attn": out("dropout", 1, of=2), "mlp": out("dropout", 2, of=2)}
)
_LLAMA4 = LLAMA.like("hf-llama4", hf("Llama4TextModel"), points={"mlp": out("feed_forward")})
_GPT_OSS = LLAMA.like(
    "hf-gpt-oss", hf("GptOssModel FlintModel OpenAIPrivacyFilterModel"), attention={"sink": "self_attn.sinks"}
)
# Measured, with matrices, but not explained: a normalisation stands among the maps that would be W_V W_proj.
_DEEPSEEK = LLAMA.like(
    "hf-deepseek",
    hf("DeepseekV2Model DeepseekV3Model Glm4MoeLiteModel"),
    attention={"value": Slot("self_attn.kv_b_proj"), "nonlinear": ("self_attn.kv_a_layernorm",)},
)
_BITNET = LLAMA.like("hf-bitnet", hf("BitNetModel"), attention={"nonlinear": ("self_attn.attn_sub_norm",)})
# normalised before and after each branch
_GLM4 = LLAMA.like(
    "hf-glm4",
    hf("Glm4Model Kolibri1Model"),
    points={"attn": out("post_self_attn_layernorm"), "mlp": out("post_mlp_layernorm")},
    attention={"out_norm": "post_self_attn_layernorm"},
)
# x + norm(attn(x)): the normalisation is on the branch's output, its input is the bare stream.
_OLMO2 = LLAMA.like(
    "hf-olmo2",
    hf("Olmo2Model Olmo3Model FlexOlmoModel Exaone4Model"),
    points={
        "norm1": (),
        "norm2": (),
        "mid": into("mlp"),
        "attn": out("post_attention_layernorm"),
        "mlp": out("post_feedforward_layernorm"),
    },
    attention={"norm": (), "out_norm": "post_attention_layernorm"},
)
# one norm, without weights, for the embedding and for the end
_NANOCHAT = LLAMA.like("hf-nanochat", hf("NanoChatModel"), embed=out("norm", 1, of=2), final_norm=out("norm", 2, of=2))

# Before GPT-2.
_OPENAI_GPT = GPT2.like(
    "hf-openai-gpt",
    hf("OpenAIGPTModel"),
    placement="post",
    points=post_norm("attn", "ln_1", "mlp", "ln_2"),
    final_norm=(),
    attention={"heads": "attn.n_head", "norm": (), "post_norm": "ln_1", "maps": Maps(into("attn.attn_dropout"))},
)
_CTRL = Family(
    name="hf-ctrl",
    classes=hf("CTRLModel"),
    blocks="h",
    embed=out("dropout"),
    points=pre_norm("layernorm1", "dropout1", "layernorm2", "dropout2"),
    final_norm=out("layernorm"),
    attention=AttentionRow(
        module="multi_head_attention",
        value=Slot("multi_head_attention.Wv"),
        proj=Slot("multi_head_attention.dense"),
        heads="multi_head_attention.num_heads",
        norm="layernorm1",
        maps=replace(eager_maps("multi_head_attention"), call_with={"output_attentions": True}),
    ),
    causal=True,
)
# Two softmaxes are subtracted and the difference normalised: neither one matrix nor a sum of A X W_V W_proj. Measured.
_DIFF_LLAMA = replace(LLAMA, name="hf-diffllama", classes=hf("DiffLlamaModel"), attention=None)
