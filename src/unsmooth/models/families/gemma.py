"""Rows for Gemma and its relatives: norms that multiply by 1 + weight, before and after each branch."""

from __future__ import annotations

from dataclasses import replace

from unsmooth.models.families.decoders import LLAMA
from unsmooth.models.family import Family
from unsmooth.models.taps import into, out

assert LLAMA.attention is not None
_SCALED = out("embed_tokens", needs="embed_scale")
_GEMMA = replace(
    LLAMA,
    name="hf-gemma",
    classes=("transformers.GemmaModel",),
    embed=_SCALED,
    attention=replace(LLAMA.attention, norm_offset=1.0),
)
_GEMMA2 = replace(
    LLAMA,
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
    attention=replace(LLAMA.attention, norm_offset=1.0, out_norm="post_attention_layernorm"),
)

assert _GEMMA2.attention is not None
_T5GEMMA_ENCODER = replace(
    _GEMMA2,
    name="hf-t5gemma-encoder",
    classes=("transformers.T5GemmaEncoder",),
    embed=out("dropout", 1, of=2),  # the second call is on the final norm's output
    points={
        **_GEMMA2.points,
        "norm1": out("pre_self_attn_layernorm"),
        "attn": out("dropout", 1, of=2),
        "mlp": out("dropout", 2, of=2),
    },
    attention=replace(_GEMMA2.attention, norm="pre_self_attn_layernorm", out_norm="post_self_attn_layernorm"),
    causal=False,
)
_VAULT_GEMMA = replace(
    _GEMMA,
    name="hf-vault-gemma",
    classes=("transformers.VaultGemmaModel",),
    points={**LLAMA.points, "mid": into("pre_feedforward_layernorm"), "norm2": out("pre_feedforward_layernorm")},
)

FAMILIES: tuple[Family, ...] = (_GEMMA, _GEMMA2, _T5GEMMA_ENCODER, _VAULT_GEMMA)
