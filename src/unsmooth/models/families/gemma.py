"""Rows for Gemma and its relatives: norms that multiply by 1 + weight, before and after each branch."""

from __future__ import annotations

from unsmooth.models.families.decoders import LLAMA
from unsmooth.models.family import hf, pre_norm
from unsmooth.models.taps import into, out

_SCALED = out("embed_tokens", needs="embed_scale")
_GEMMA = LLAMA.like("hf-gemma", hf("GemmaModel"), embed=_SCALED, attention={"norm_offset": 1.0})
_GEMMA2 = LLAMA.like(
    "hf-gemma2",
    hf("Gemma2Model Gemma3TextModel"),
    embed=_SCALED,
    points=pre_norm(
        "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"
    ),
    attention={"norm_offset": 1.0, "out_norm": "post_attention_layernorm"},
)

_T5GEMMA_ENCODER = _GEMMA2.like(
    "hf-t5gemma-encoder",
    hf("T5GemmaEncoder"),
    embed=out("dropout", 1, of=2),  # the second call is on the final norm's output
    points={
        "norm1": out("pre_self_attn_layernorm"),
        "attn": out("dropout", 1, of=2),
        "mlp": out("dropout", 2, of=2),
    },
    attention={"norm": "pre_self_attn_layernorm", "out_norm": "post_self_attn_layernorm"},
    causal=False,
)
_VAULT_GEMMA = _GEMMA.like(
    "hf-vault-gemma",
    hf("VaultGemmaModel"),
    points={"mid": into("pre_feedforward_layernorm"), "norm2": out("pre_feedforward_layernorm")},
)
