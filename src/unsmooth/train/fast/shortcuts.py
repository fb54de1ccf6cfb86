"""What a classifier's training step need not compute: the same loss and gradients for less.

Only the class token of the last block reaches the head. Its query, its projection and its MLP are all that is
needed there; keys and values are needed of every token. That saves most of one block in twelve.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from importlib.util import find_spec
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from unsmooth.control.spectral import SpectralControl


class Shortcuts(AbstractContextManager[None]):
    """Inside, the model trains by short cuts where it is a timm VisionTransformer of the plain kind.

    Hooks of blocks still run, which is where `control` acts; attention with hooks of its own, and a last block whose
    tokens a hook looks at (peer fixes), are left alone. Entering again brings the same functions: compiled code stays.
    """

    def __init__(self, model: Any, *, class_token: bool, tiled: bool) -> None:
        self.swaps: list[tuple[Any, Callable[..., Tensor]]] = []
        self.class_token = self.tiled = False  # what is taken
        if not _is_plain(model):
            return
        blocks = list(model.blocks)
        if class_token and model.global_pool == "token" and _unseen(blocks[-1]) and _untouched(blocks[-1].attn):
            last = blocks.pop()
            self.swaps.append((last, partial(_class_token_block, last)))
            self.class_token = True
        fitting = [b.attn for b in blocks if _untouched(b.attn) and _fits(b.attn)] if tiled else []
        if fitting and _kernels_work(model, fitting[0]):
            self.swaps += [(attention, partial(_tiled_attention, attention)) for attention in fitting]
            self.tiled = True

    def __enter__(self) -> None:
        for module, function in self.swaps:
            module.forward = function

    def __exit__(self, *error: object) -> None:
        for module, _ in self.swaps:
            del module.forward


def _is_plain(model: Any) -> bool:
    from timm.models.vision_transformer import Block, VisionTransformer

    return (
        type(model) is VisionTransformer
        and model.attn_pool is None
        and all(type(block) is Block and "forward" not in vars(block) for block in model.blocks)
    )


def _unseen(module: nn.Module) -> bool:
    """Whether nothing but `control` has hooks in it; a hook of a fix may want every token."""
    hooks = [
        hook for part in module.modules() for hook in (*part._forward_hooks.values(), *part._forward_pre_hooks.values())
    ]
    return all(isinstance(getattr(hook, "__self__", None), SpectralControl) for hook in hooks)


def _untouched(attention: Any) -> bool:
    """Softmax attention and nothing else."""
    from timm.models.vision_transformer import Attention

    if type(attention) is not Attention or "forward" in vars(attention) or getattr(attention, "gate", None) is not None:
        return False
    if not _unseen(attention):
        return False
    norms = (attention.q_norm, attention.k_norm, getattr(attention, "norm", nn.Identity()))
    return attention.attn_drop.p == 0 and all(isinstance(norm, nn.Identity) for norm in norms)


def _fits(attention: Any) -> bool:
    return attention.head_dim in (16, 32, 64, 128)


def _kernels_work(model: Any, attention: Any) -> bool:
    if find_spec("triton") is None:
        return False
    from unsmooth.train.fast.attention import works_on

    device, tokens = next(model.parameters()).device, model.patch_embed.num_patches + model.num_prefix_tokens
    return works_on(device, tokens, attention.num_heads, attention.head_dim)


def _tiled_attention(module: Any, x: Float[Tensor, "batch token dim"], **_: None) -> Float[Tensor, "batch token dim"]:
    from unsmooth.train.fast.attention import attention

    mixed: Tensor = module.proj_drop(module.proj(attention(module.qkv(x), module.num_heads)))
    return mixed


def _class_token_block(block: Any, x: Float[Tensor, "batch token dim"], **_: None) -> Float[Tensor, "batch 1 dim"]:
    """What the block makes of the first token."""
    module = block.attn
    weight, bias = module.qkv.weight, module.qkv.bias
    width, shape = weight.shape[0] // 3, (len(x), -1, module.num_heads, module.head_dim)
    normed = block.norm1(x)
    query = F.linear(normed[:, :1], weight[:width], None if bias is None else bias[:width])
    both = F.linear(normed, weight[width:], None if bias is None else bias[width:])
    key, value = both.split(width, -1)
    q, k, v = (part.reshape(shape).transpose(1, 2) for part in (query, key, value))
    mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
    first = x[:, :1] + block.drop_path1(block.ls1(module.proj_drop(module.proj(mixed))))
    out: Tensor = first + block.drop_path2(block.ls2(block.mlp(block.norm2(first))))
    return out
