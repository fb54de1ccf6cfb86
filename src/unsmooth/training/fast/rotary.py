"""Softmax attention with rotary positions on packed q, k, v, for sequences of at most 128 tokens (CUDA, Triton).

A sequence that short is one tile: the attention matrix of a head stays on chip, so the backward pass needs nothing of
the forward but its input, and each pass reads its input and writes its output once. Turning q and k is part of it.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from jaxtyping import Float, Int32
from torch import Tensor

from unsmooth.training.fast.attention import LOG2_E
from unsmooth.training.fast.kernels.rotary import backward_kernel, forward_kernel

LONGEST = 128  # tokens; the matrix of a longer sequence does not fit into one program's registers
FORWARD_WARPS, BACKWARD_WARPS = 4, 8


def _constants(qkv: Tensor, heads: int) -> dict[str, int]:
    _, tokens, packed = qkv.shape
    return {"HEADS": heads, "HALF": packed // (6 * heads), "TILE": max(16, triton.next_power_of_2(tokens))}


@torch.library.custom_op("unsmooth::rotary_attention", mutates_args=())
def _rotary_attention(qkv: Tensor, cos: Tensor, sin: Tensor, ends: Tensor | None, heads: int) -> Tensor:
    batch, tokens, packed = qkv.shape
    qkv, scale = qkv.contiguous(), (packed // (3 * heads)) ** -0.5 * LOG2_E
    out = qkv.new_empty(batch, tokens, packed // 3)
    forward_kernel[(batch * heads,)](
        qkv, cos, sin, ends, out, tokens, scale, **_constants(qkv, heads), num_warps=FORWARD_WARPS
    )
    return out


@_rotary_attention.register_fake
def _(qkv: Tensor, cos: Tensor, sin: Tensor, ends: Tensor | None, heads: int) -> Tensor:
    return qkv.new_empty(*qkv.shape[:2], qkv.shape[2] // 3)


@torch.library.custom_op("unsmooth::rotary_attention_backward", mutates_args=())
def _rotary_attention_backward(
    qkv: Tensor, cos: Tensor, sin: Tensor, ends: Tensor | None, d_out: Tensor, heads: int
) -> Tensor:
    batch, tokens, packed = qkv.shape
    qkv, d_out, root = qkv.contiguous(), d_out.contiguous(), (packed // (3 * heads)) ** -0.5
    d_qkv = torch.empty_like(qkv)
    backward_kernel[(batch * heads,)](
        qkv,
        cos,
        sin,
        ends,
        d_out,
        d_qkv,
        tokens,
        root * LOG2_E,
        root,
        **_constants(qkv, heads),
        num_warps=BACKWARD_WARPS,
    )
    return d_qkv


@_rotary_attention_backward.register_fake
def _(qkv: Tensor, cos: Tensor, sin: Tensor, ends: Tensor | None, d_out: Tensor, heads: int) -> Tensor:
    return torch.empty_like(qkv, memory_format=torch.contiguous_format)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:4])
    ctx.heads = inputs[4]


def _differentiate(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
    return _rotary_attention_backward(*ctx.saved_tensors, d_out, ctx.heads), None, None, None, None


_rotary_attention.register_autograd(_differentiate, setup_context=_keep)


def rotary_attention(
    qkv: Float[Tensor, "batch token packed"],
    cos: Float[Tensor, "token half"],
    sin: Float[Tensor, "token half"],
    heads: int,
    ends: Int32[Tensor, " batch"] | None = None,
) -> Float[Tensor, "batch token dim"]:
    """softmax(Q Kᵀ / √k) V of every head, Q and K turned by the tokens' angles; features lie as (q, k, v) × head × k.

    Of a padded sequence only the first `ends` tokens are attended to. `cos` and `sin`, in float32, are those of one
    half: columns j and j + k/2 turn together, as Hugging Face has it.
    """
    out: Tensor = _rotary_attention(qkv, cos, sin, ends, heads)
    return out
