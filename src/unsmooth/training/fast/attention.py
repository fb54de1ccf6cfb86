"""Softmax attention on packed q, k, v, for sequences a little longer than a multiple of the tile (CUDA, Triton).

ViT-Ti on 32 px with patch 2 has 257 = 4·64 + 1 tokens. Kernels with tiles of 64 or 128 compute 320 or 384 of them in
each direction; here the rest gets a small tile of its own, which makes it 272. Packed means that q, k and v are read
from the output of the `qkv` layer as it is, and their gradient is written in that layout: nothing is copied.

The backward pass computes the scores twice, once for (dK, dV) and once for dQ, so that no two programs write to the
same place: results do not depend on the order in which they run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
from jaxtyping import Float
from torch import Tensor

from unsmooth.training.fast.kernels.attention import backward_keys_kernel, backward_queries_kernel, forward_kernel

LOG2_E = 1.4426950408889634  # exp(x) = 2^(x log₂ e): the hardware's exponential is that of base 2


@dataclass(frozen=True)
class Tiles:
    """Rows that a program owns, rows that it visits at a time, its warps, stages of loading ahead, most registers.

    Fewer registers let more programs share a multiprocessor; the small tile's code alone would need the most.
    """

    own: int
    visit: int
    warps: int
    stages: int
    registers: int | None = None

    def arguments(self, tokens: int) -> dict[str, int]:
        """The kernel's constants: full tiles, and the small one that holds the rest (0 if nothing is left over).

        >>> Tiles(128, 64, 8, 2).arguments(257)
        {'OWN': 128, 'OWN_FULL': 2, 'OWN_REST': 16, 'VISIT': 64, 'FULL': 4, 'REST': 16, 'num_warps': 8, 'num_stages': 2}
        """
        return {
            "OWN": self.own,
            "OWN_FULL": tokens // self.own,
            "OWN_REST": _tile_of(tokens % self.own),
            "VISIT": self.visit,
            "FULL": tokens // self.visit,
            "REST": _tile_of(tokens % self.visit),
            "num_warps": self.warps,
            "num_stages": self.stages,
        } | ({"maxnreg": self.registers} if self.registers else {})


def _tile_of(rest: int) -> int:
    return max(16, triton.next_power_of_2(rest)) if rest else 0  # 16 rows are the least a tensor core takes


FORWARD = Tiles(own=64, visit=64, warps=4, stages=3)
BACKWARD_KEYS = Tiles(own=64, visit=64, warps=4, stages=1, registers=168)
BACKWARD_QUERIES = Tiles(own=64, visit=64, warps=4, stages=3)


def launch_forward(qkv: Tensor, out: Tensor, lse: Tensor, heads: int, tiles: Tiles = FORWARD) -> None:
    """Fill `out` and `lse`, the logarithm (base 2) of the softmax's sums."""
    batch, tokens, packed = qkv.shape
    dim = packed // (3 * heads)
    grid = (batch * heads, triton.cdiv(tokens, tiles.own))
    forward_kernel[grid](
        qkv, out, lse, tokens, dim**-0.5 * LOG2_E, HEADS=heads, DIM=dim, **tiles.arguments(tokens)
    )  # fmt: skip


def launch_backward(
    kernel: Any, tiles: Tiles, qkv: Tensor, d_out: Tensor, lse: Tensor, product: Tensor, d_qkv: Tensor, heads: int
) -> None:
    """Fill the keys' and values' part of `d_qkv`, or the queries'."""
    batch, tokens, packed = qkv.shape
    dim = packed // (3 * heads)
    grid, root = (batch * heads, triton.cdiv(tokens, tiles.own)), dim**-0.5
    kernel[grid](
        qkv, d_out, lse, product, d_qkv, tokens, root * LOG2_E, root, HEADS=heads, DIM=dim, **tiles.arguments(tokens)
    )  # fmt: skip


@torch.library.custom_op("unsmooth::attention", mutates_args=())
def _attention(qkv: Tensor, heads: int) -> tuple[Tensor, Tensor]:  # plain types: torch reads the op's schema off them
    batch, tokens, packed = qkv.shape
    out = qkv.new_empty(batch, tokens, packed // 3)
    lse = qkv.new_empty(batch, heads, tokens, dtype=torch.float32)
    launch_forward(qkv.contiguous(), out, lse, heads)
    return out, lse


@_attention.register_fake
def _(qkv: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    batch, tokens, packed = qkv.shape
    return qkv.new_empty(batch, tokens, packed // 3), qkv.new_empty(batch, heads, tokens, dtype=torch.float32)


@torch.library.custom_op("unsmooth::attention_backward", mutates_args=())
def _attention_backward(qkv: Tensor, d_out: Tensor, lse: Tensor, product: Tensor, heads: int) -> Tensor:
    qkv, d_out, product = qkv.contiguous(), d_out.contiguous(), product.contiguous()
    d_qkv = torch.empty_like(qkv)
    for kernel, tiles in ((backward_keys_kernel, BACKWARD_KEYS), (backward_queries_kernel, BACKWARD_QUERIES)):
        launch_backward(kernel, tiles, qkv, d_out, lse, product, d_qkv, heads)
    return d_qkv


@_attention_backward.register_fake
def _(qkv: Tensor, d_out: Tensor, lse: Tensor, product: Tensor, heads: int) -> Tensor:
    return torch.empty_like(qkv, memory_format=torch.contiguous_format)


def _keep(ctx: Any, inputs: tuple[Tensor, int], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(inputs[0], *output)
    ctx.heads = inputs[1]


def _differentiate(ctx: Any, d_out: Tensor, _: Tensor) -> tuple[Tensor, None]:
    qkv, out, lse = ctx.saved_tensors
    product = (d_out.float() * out.float()).unflatten(-1, (ctx.heads, -1)).sum(-1)  # Σ dO · O: the softmax's own part
    return _attention_backward(qkv, d_out, lse, product, ctx.heads), None


_attention.register_autograd(_differentiate, setup_context=_keep)


def attention(qkv: Float[Tensor, "batch token packed"], heads: int) -> Float[Tensor, "batch token dim"]:
    """softmax(Q Kᵀ / √k) V of every head; features lie as (q, k, v) × head × k, as timm's `qkv` layer writes them."""
    out: Tensor = _attention(qkv, heads)[0]
    return out
