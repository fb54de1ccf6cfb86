"""Attention with its matrix in the open: timm's `Attention`, and Hugging Face's attention interface.

Fused kernels never form A, so a fix that changes A needs the softmax written out. Names and classes stay (a
subclass takes the module over), so that checkpoints, `unsmooth.models` and `reparametrize` see the same model.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from unsmooth.control.peers.base import AttentionFix, Maps
from unsmooth.errors import WeightsError
from unsmooth.models import ModelView
from unsmooth.models.family import is_one_of

_HF_NAME = "unsmooth_fix"


def open_attention(v: ModelView, attention: nn.Module, fix: AttentionFix) -> None:
    """Have `fix` act inside this attention module from now on."""
    backbone: Any = v.backbone
    if is_one_of(attention, ("timm.Attention",)):
        attention.add_module("fix", fix)
        attention.__class__ = type(f"Fixed{type(attention).__name__}", (_Timm, type(attention)), {})
    elif getattr(backbone, "_supports_attention_backend", False):
        _register_hf()
        attention.add_module("fix", fix)
        backbone.config._attn_implementation = _HF_NAME
    else:
        raise WeightsError(
            f"a fix of the attention matrix needs timm's Attention or a Hugging Face model with an attention "
            f"interface; {type(attention).__name__} of family {v.family.name!r} is neither"
        )


def softmax_of(scores: Maps, mask: Tensor | None) -> tuple[Maps, Maps]:
    """A, and the matrix that averages the tokens each query may see; `mask` is boolean (seen) or additive."""
    seen = torch.ones_like(scores, dtype=torch.bool)
    if mask is not None:
        seen = (mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2).expand_as(scores)
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    a = scores.float().softmax(-1).to(scores.dtype)
    return a, (seen / seen.sum(-1, keepdim=True).clamp(min=1)).to(scores.dtype)


class _Timm(nn.Module):
    """Takes over timm's `Attention`: the same steps, with `fix` at the matrix and at the mixing of values."""

    def forward(self: Any, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        batch, tokens, _ = x.shape
        gate = None if getattr(self, "gate", None) is None else self.gate(x).sigmoid()
        q, k, v = self.qkv(x).reshape(batch, tokens, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        q, k = self.q_norm(q), self.k_norm(k)
        if is_causal:
            attn_mask = torch.ones(tokens, tokens, dtype=torch.bool, device=x.device).tril()
        a, uniform = softmax_of(q * self.scale @ k.mT, attn_mask)
        a = self.attn_drop(self.fix.matrix(a, uniform))
        x = self.fix.mix(a, v).transpose(1, 2).reshape(batch, tokens, -1)
        x = self.norm(x) if hasattr(self, "norm") else x
        return self.proj_drop(self.proj(x if gate is None else x * gate))


def _hf_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, Tensor]:
    """Hugging Face's eager attention with `module.fix`; modules without one (layers left alone) as ever."""
    group = query.shape[1] // key.shape[1]
    key, value = (t.repeat_interleave(group, 1) if group > 1 else t for t in (key, value))
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if attention_mask is not None:
        attention_mask = attention_mask[..., : key.shape[-2]]
    a, uniform = softmax_of(query @ key.mT * scale, attention_mask)
    fix = getattr(module, "fix", None) or AttentionFix()
    a = nn.functional.dropout(fix.matrix(a, uniform), dropout, module.training)
    return fix.mix(a, value).transpose(1, 2).contiguous(), a


def _register_hf() -> None:
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    AttentionInterface.register(_HF_NAME, _hf_attention)
    AttentionMaskInterface.register(_HF_NAME, eager_mask)
