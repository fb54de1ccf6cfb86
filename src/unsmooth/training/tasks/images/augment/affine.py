"""Shear, translate and rotate as Pillow does them, a different map for every image of the batch."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float64, Int32
from torch import Tensor


def rotation(degrees: Float64[Tensor, batch], size: int) -> Float64[Tensor, "batch 6"]:
    """Pillow's output-to-input map of `Image.rotate`, about the centre."""
    angle = -torch.deg2rad(degrees)
    cos, sin = torch.cos(angle), torch.sin(angle)
    centre = size / 2
    return torch.stack(
        [
            cos,
            sin,
            centre - centre * (cos + sin),
            -sin,
            cos,
            centre - centre * (cos - sin),
        ],
        -1,
    )


def warp(
    x: Int32[Tensor, "batch channel height width"],
    matrix: Float64[Tensor, "batch 6"],
    bicubic: Bool[Tensor, batch],
    fill: Int32[Tensor, channel],
) -> Int32[Tensor, "batch channel height width"]:
    """`Image.transform(AFFINE)`: pixel centres mapped by `matrix`, bilinear or bicubic, `fill` outside.

    Rows and columns are clamped at the border.
    Float64, since Pillow truncates and 99.9999 is not 100.
    """
    batch, channels, height, width = x.shape
    ys = torch.arange(height, device=x.device, dtype=torch.float64)[:, None] + 0.5
    xs = torch.arange(width, device=x.device, dtype=torch.float64)[None, :] + 0.5
    a, b, c, d, e, f = (matrix[:, i, None, None] for i in range(6))
    u = a * xs + b * ys + c
    v = d * xs + e * ys + f
    inside = (u >= 0) & (u < width) & (v >= 0) & (v < height)
    column, across = _split(u - 0.5)
    row, down = _split(v - 0.5)
    flat = x.reshape(batch, channels, height * width).to(torch.float64)
    lines = []
    for i in range(-1, 3):
        base = (row + i).clamp(0, height - 1) * width
        taps = []
        for j in range(-1, 3):
            where = base + (column + j).clamp(0, width - 1)
            index = where.reshape(batch, 1, -1).expand(-1, channels, -1)
            taps.append(flat.gather(2, index.to(torch.int64)).reshape(x.shape))
        lines.append(_interpolate(taps, across[:, None], bicubic))
    total = _interpolate(lines, down[:, None], bicubic)
    value = total.clamp(0, 255).to(torch.int32)  # Pillow truncates
    return torch.where(inside[:, None], value, fill[None, :, None, None])


def _split(t: Float64[Tensor, "*shape"]) -> tuple[Tensor, Float64[Tensor, "*shape"]]:
    whole = torch.floor(t)
    return whole.to(torch.int32), t - whole  # places in an image: a GPU takes several operations for one of int64


def _interpolate(
    v: list[Float64[Tensor, "batch channel height width"]], d: Float64[Tensor, ...], bicubic: Bool[Tensor, batch]
) -> Float64[Tensor, "batch channel height width"]:
    """Between `v[1]` and `v[2]`, at `d` in [0, 1), in Pillow's order of operations.

    Pillow's bicubic kernel for transforms has a = −1, unlike its kernel for resizing.
    """
    linear = v[1] + (v[2] - v[1]) * d
    cubic = v[1] + d * (v[2] - v[0] + d * (2 * (v[0] - v[1]) + v[2] - v[3] + d * (v[1] - v[0] - v[2] + v[3])))
    return torch.where(bicubic[:, None, None, None], cubic, linear)
