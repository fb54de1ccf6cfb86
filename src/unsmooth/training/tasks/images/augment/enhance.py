"""Color, contrast, brightness, sharpness: a blend of the image with a degenerate one."""

from __future__ import annotations

import torch
from jaxtyping import Float32, Int32
from torch import Tensor

Pixels = Int32[Tensor, "batch channel height width"]


def grey(x: Pixels) -> Int32[Tensor, "batch 1 height width"]:
    """Pillow's luma in 16-bit fixed point."""
    red, green, blue = x[:, 0:1], x[:, 1:2], x[:, 2:3]
    return (red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16


def mean_grey(luma: Int32[Tensor, "batch 1 height width"]) -> Int32[Tensor, "batch 1 1 1"]:
    """The rounded mean luma, which is what contrast blends with."""
    count = luma.shape[-1] * luma.shape[-2]
    total = luma.sum((2, 3), keepdim=True, dtype=torch.int64)
    return ((2 * total + count) // (2 * count)).to(torch.int32)


def smoothed(x: Pixels) -> Pixels:
    """Pillow's SMOOTH filter: 3×3, centre 5, others 1, over 13; the outermost pixels stay."""
    y = x.clone()
    inner = 4 * x[:, :, 1:-1, 1:-1]
    for dy in range(3):
        for dx in range(3):
            inner = inner + x[:, :, dy : x.shape[2] - 2 + dy, dx : x.shape[3] - 2 + dx]
    y[:, :, 1:-1, 1:-1] = (2 * inner + 13) // 26  # rounded to the nearest
    return y


def blend(base: Tensor, x: Pixels, factor: Float32[Tensor, batch]) -> Pixels:
    """`base + factor · (x − base)` in float32, clipped and cut as Pillow does."""
    low = base.to(torch.float32)
    mixed = low + factor[:, None, None, None] * (x.to(torch.float32) - low)
    return mixed.clamp(0, 255).to(torch.int32)
