"""Forward passes of timm's `Attention` and `Block` by short cuts: the same function for less."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

if TYPE_CHECKING:
    from unsmooth.training.fast.add_norm import Pending

Tokens = Float[Tensor, "batch token dim"]


def tiled_attention(module: Any, x: Tokens, **_: None) -> Tokens:
    """timm's attention by our kernels."""
    from unsmooth.training.fast.attention import attention

    mixed: Tensor = module.proj_drop(module.proj(attention(module.qkv(x), module.num_heads)))
    return mixed


def fused_block(block: Any, x: Tokens | Pending, **_: None) -> Pending:
    """The block without its last addition, which the next one does together with its normalisation."""
    from unsmooth.training.fast.attention import attention
    from unsmooth.training.fast.gelu import gelu

    stream, normed = _normalise(x, block.norm1)
    mixed = attention(block.attn.qkv(normed), block.attn.num_heads)
    stream, normed = _normalise(_pending(stream, mixed, block.attn.proj, block.drop_path1), block.norm2)
    hidden = gelu(F.linear(normed, block.mlp.fc1.weight), block.mlp.fc1.bias)
    return _pending(stream, hidden, block.mlp.fc2, block.drop_path2)


def fused_last_block(block: Any, x: Tokens | Pending, **_: None) -> Tokens:
    """The block with its last addition."""
    return fused_block(block, x).add()


def class_token_block(block: Any, x: Tokens | Pending, **_: None) -> Float[Tensor, "batch 1 dim"]:
    """What the block makes of the first token."""
    module = block.attn
    weight, bias = module.qkv.weight, module.qkv.bias
    stream, normed = _normalise(x, block.norm1)
    width, shape = weight.shape[0] // 3, (len(stream), -1, module.num_heads, module.head_dim)
    query = F.linear(normed[:, :1], weight[:width], None if bias is None else bias[:width])
    both = F.linear(normed, weight[width:], None if bias is None else bias[width:])
    key, value = both.split(width, -1)
    q, k, v = (part.reshape(shape).transpose(1, 2) for part in (query, key, value))
    mixed = _attend(q, k, v).transpose(1, 2).flatten(2)
    first = stream[:, :1] + block.drop_path1(block.ls1(module.proj_drop(module.proj(mixed))))
    out: Tensor = first + block.drop_path2(block.ls2(block.mlp(block.norm2(first))))
    return out


def _attend(
    q: Float[Tensor, "batch head 1 dim"],
    k: Float[Tensor, "batch head token dim"],
    v: Float[Tensor, "batch head token dim"],
) -> Float[Tensor, "batch head 1 dim"]:
    """softmax(q Kᵀ / √k) V of one query, written out: a few passes over K and V.

    Not by PyTorch's kernels: in bfloat16 on a GPU their backward pass may give NaN where all scores are very low.
    """
    work = torch.promote_types(q.dtype, torch.float32)
    scores = (q.to(work) * k.to(work)).sum(-1) * q.shape[-1] ** -0.5
    return (scores.softmax(-1)[..., None] * v.to(work)).sum(-2, keepdim=True).to(v.dtype)


def _normalise(x: Tokens | Pending, norm: Any) -> tuple[Tokens, Tokens]:
    if isinstance(x, Tensor):
        return x, norm(x)
    from unsmooth.training.fast.add_norm import add_norm

    return add_norm(x, norm.weight, norm.bias, norm.eps)


def _pending(stream: Tokens, mixed: Tokens, linear: Any, drop_path: Any) -> Pending:
    from unsmooth.training.fast.add_norm import Pending

    keep = drop_path(stream.new_ones(len(stream), 1, 1))  # draws for each image what it would for its tokens
    return Pending(stream, F.linear(mixed, linear.weight), linear.bias, keep.flatten())
