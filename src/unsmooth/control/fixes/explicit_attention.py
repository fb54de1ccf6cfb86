"""Attention with its matrix in the open: timm's `Attention`, and Hugging Face's attention interface.

Fused kernels never form A, so a fix that changes A needs the softmax written out. Names and classes stay (a
subclass takes the module over), so that checkpoints, `unsmooth.models` and `reparametrize` see the same model.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from unsmooth.control.fixes.base import AttentionFix, Maps
from unsmooth.errors import WeightsError
from unsmooth.models import LayerView, ModelView
from unsmooth.models.attention import EXPLICIT
from unsmooth.models.family import class_name
from unsmooth.models.taps import find

_HF_NAME = "unsmooth_fix"


def open_attention(v: ModelView, attention: nn.Module, fix: AttentionFix) -> None:
    """Have `fix` act inside this attention module from now on."""
    attention.add_module("fix", fix)
    if _is_timm(attention):
        attention.__class__ = _fixed(type(attention))
        return
    _register_hf()
    for owner in (v.backbone, attention):  # the mask is made by the one, the attention chosen by the other
        owner.config._attn_implementation = _HF_NAME  # type: ignore[union-attr]


def refuse_closed(v: ModelView, layer: LayerView) -> None:
    """WeightsError where no fix can reach the attention matrix, or where that is not A."""
    attention = layer.attention
    hugging_face = getattr(v.backbone, "_supports_attention_backend", False) and hasattr(attention, "config")
    if not _is_timm(attention) and not hugging_face:
        instead = (
            "the other fixes mix all tokens, which a causal model must not: use reparametrize, adapt or edit"
            if v.causal
            else "choose featscale or contranorm, which need no matrix"
        )
        raise WeightsError(
            f"a fix of the attention matrix needs timm's Attention or a Hugging Face model with an attention "
            f"interface; {type(attention).__name__} of family {v.family.name!r} is neither: {instead}"
        )
    if find(layer.block, layer.attention_row.sink) is not None:
        raise WeightsError(
            f"{layer.name}: {type(attention).__name__} adds a sink to its softmax, so the rows of its matrix do not "
            "sum to 1, as a fix of the attention matrix expects: leave the layer out"
        )


def _is_timm(attention: nn.Module) -> bool:
    """timm's `Attention` with its own forward pass, perhaps parametrised; a subclass may compute something else."""
    definer = next(base for base in type(attention).__mro__ if "forward" in vars(base))
    return class_name(definer) == "timm.Attention"


def softmax_of(scores: Maps, mask: Tensor | None) -> tuple[Maps, Maps]:
    """A, and the matrix that averages the tokens each query may see; `mask` is boolean (seen) or additive."""
    seen = torch.ones_like(scores, dtype=torch.bool)
    if mask is not None:
        # The lowest number of float32 hides a token in float64 too: masks come from models that know float32 only.
        lowest = max(torch.finfo(kind).min for kind in (mask.dtype, torch.float32)) if mask.is_floating_point() else 0.0
        seen = (mask if mask.dtype == torch.bool else mask > lowest / 2).expand_as(scores)
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    a = scores.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(scores.dtype)
    return a, (seen / seen.sum(-1, keepdim=True).clamp(min=1)).to(scores.dtype)


def _fixed(attention: type[nn.Module]) -> type[nn.Module]:
    """timm's class, taken over."""
    return type(f"Fixed{attention.__name__}", (_Timm, attention), {})


def _unpickled(attention: type[nn.Module]) -> nn.Module:
    fixed = _fixed(attention)
    return fixed.__new__(fixed)


class _Timm(nn.Module):
    """Takes over timm's `Attention`: the same steps, with `fix` at the matrix and at the mixing of values."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles go by timm's class: this one is made for the module, and has no name to import."""
        return _unpickled, (type(self).__bases__[1],), self.__getstate__()

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
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor]:
    """Hugging Face's eager attention with `module.fix`; modules without one (layers left alone) as ever."""
    if s_aux is not None:
        raise WeightsError(f"{type(module).__name__} adds a sink to its softmax: its rows do not sum to 1")
    group = query.shape[1] // key.shape[1]
    key, value = (t.repeat_interleave(group, 1) if group > 1 else t for t in (key, value))
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    scores = query @ key.mT * scale
    scores = scores if softcap is None else softcap * (scores / softcap).tanh()  # Gemma 2
    if attention_mask is not None:
        attention_mask = attention_mask[..., : key.shape[-2]]
    a, uniform = softmax_of(scores, attention_mask)
    fix = getattr(module, "fix", None) or AttentionFix()
    a = nn.functional.dropout(fix.matrix(a, uniform), dropout, module.training)
    return fix.mix(a, value).transpose(1, 2).contiguous(), a


def _register_hf() -> None:
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    EXPLICIT.add(_HF_NAME)
    AttentionInterface.register(_HF_NAME, _hf_attention)
    AttentionMaskInterface.register(_HF_NAME, eager_mask)
