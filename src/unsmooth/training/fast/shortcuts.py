"""What a classifier's training step need not compute: the same loss and gradients for less.

- `class_token`: only the class token of the last block reaches the head. Its query, its projection and its MLP are all
  that is needed there; keys and values are needed of every token. That saves most of one block in twelve.
- `tiled`: attention by kernels that waste little on the 257th token (attention.py).
- `fused`: the residual stream is read and written once per sub-layer instead of up to four times (add_norm.py,
  gelu.py); the training step then also rounds all weights at once (bf16_weights.py).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from importlib.util import find_spec
from typing import Any

from torch import nn

from unsmooth.control.spectral import SpectralControl
from unsmooth.training.fast.blocks import class_token_block, fused_block, fused_last_block, tiled_attention


class Shortcuts(AbstractContextManager[None]):
    """Inside, the model trains by short cuts where it is a timm VisionTransformer of the plain kind.

    Hooks of blocks still run, which is where `control` acts; attention with hooks of its own, and a last block whose
    tokens a hook looks at (published fixes), are left alone. Entering again brings the same functions: compiled code
    stays.
    """

    def __init__(self, model: Any, *, class_token: bool = False, tiled: bool = False, fused: bool = False) -> None:
        self.swaps: list[tuple[Any, Callable[..., Any]]] = []
        self.class_token = self.tiled = self.fused = False  # what is taken
        if not _is_plain(model):
            return
        blocks = list(model.blocks)
        last = blocks[-1]
        self.class_token = class_token and model.global_pool == "token" and unseen(last) and _untouched(last.attn)
        fitting = [b.attn for b in blocks if _untouched(b.attn) and _fits(b.attn)] if tiled else []
        self.tiled = bool(fitting) and _kernels_work(model, fitting[0])
        self.fused = fused and self.tiled and len(fitting) == len(blocks) and all(map(_is_fusible, blocks))
        if self.fused:
            self._swap(blocks[:-1], fused_block)
            self._swap([last], class_token_block if self.class_token else fused_last_block)
            return
        if self.class_token:
            self._swap([last], class_token_block)
        if self.tiled:
            self._swap([a for a in fitting if not (self.class_token and a is last.attn)], tiled_attention)

    def _swap(self, modules: list[Any], forward: Callable[..., Any]) -> None:
        self.swaps += [(module, partial(forward, module)) for module in modules]

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


def unseen(module: nn.Module) -> bool:
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
    if not unseen(attention):
        return False
    norms = (attention.q_norm, attention.k_norm, getattr(attention, "norm", nn.Identity()))
    return attention.attn_drop.p == 0 and all(isinstance(norm, nn.Identity) for norm in norms)


def _fits(attention: Any) -> bool:
    return attention.head_dim in (16, 32, 64, 128)


def _is_fusible(block: Any) -> bool:
    """LayerNorms, GELU and biases as in the original ViT, and nothing between them."""
    from timm.layers import DropPath, Mlp

    mlp = block.mlp
    if type(mlp) is not Mlp or not unseen(block) or type(mlp.act) is not nn.GELU or mlp.act.approximate != "none":
        return False
    norms = all(isinstance(n, nn.LayerNorm) and n.weight is not None and n.bias is not None for n in _norms(block))
    linears = all(type(layer) is nn.Linear for layer in (mlp.fc1, mlp.fc2))
    biases = all(layer.bias is not None for layer in (block.attn.proj, mlp.fc1, mlp.fc2))
    empty = all(isinstance(part, nn.Identity) for part in (block.ls1, block.ls2, mlp.norm))
    whole = all(drop.p == 0 for drop in (block.attn.proj_drop, mlp.drop1, mlp.drop2))
    paths = all(isinstance(path, DropPath | nn.Identity) for path in (block.drop_path1, block.drop_path2))
    return norms and linears and biases and empty and whole and paths


def _norms(block: Any) -> tuple[nn.Module, nn.Module]:
    return block.norm1, block.norm2


def _kernels_work(model: Any, attention: Any) -> bool:
    if find_spec("triton") is None:
        return False
    from unsmooth.training.fast.supports import supports

    device, tokens = next(model.parameters()).device, model.patch_embed.num_patches + model.num_prefix_tokens
    return supports(device, tokens, attention.num_heads, attention.head_dim)
