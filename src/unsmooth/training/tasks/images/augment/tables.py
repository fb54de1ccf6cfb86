"""Operations that map each pixel value by itself: one table of 256 entries per image and channel."""

from __future__ import annotations

import torch
from jaxtyping import Int32, Int64
from torch import Tensor

Table = Int64[Tensor, "batch channel 256"]


def levels(device: torch.device) -> Int64[Tensor, 256]:
    """0 … 255."""
    return torch.arange(256, device=device)


def histogram(x: Int32[Tensor, "batch channel height width"]) -> Int64[Tensor, "batch channel 256"]:
    """How often each value occurs in each channel."""
    flat = x.flatten(2).to(torch.int64)
    counts = torch.zeros(*flat.shape[:2], 256, dtype=torch.int64, device=x.device)
    return counts.scatter_add(2, flat, torch.ones_like(flat))


def autocontrast(counts: Int64[Tensor, "batch channel 256"]) -> Table:
    """Stretch the used range to 0 … 255; a flat channel stays as it is."""
    value = levels(counts.device)
    used = counts > 0
    low = torch.where(used, value, 256).amin(-1, keepdim=True).double()
    high = torch.where(used, value, -1).amax(-1, keepdim=True).double()
    scale = 255.0 / (high - low).clamp(min=1)
    stretched = (value * scale + -low * scale).clamp(0, 255).to(torch.int64)
    return torch.where(high > low, stretched, value)


def equalize(counts: Int64[Tensor, "batch channel 256"]) -> Table:
    """Flatten the histogram, in Pillow's integer arithmetic."""
    value = levels(counts.device)
    last = torch.where(counts > 0, value, -1).amax(-1, keepdim=True).clamp(min=0)
    step = (counts.sum(-1, keepdim=True) - counts.gather(-1, last)) // 255
    before = counts.cumsum(-1) - counts
    flat = ((before + step // 2) // step.clamp(min=1)).clamp(max=255)
    return torch.where(step > 0, flat, value)


def posterize(bits: Int64[Tensor, batch]) -> Int64[Tensor, "batch 256"]:
    """Keep the highest `bits` bits; eight keep all."""
    drop = (8 - bits)[:, None]
    return (levels(bits.device) >> drop) << drop


def solarize(threshold: Int64[Tensor, batch]) -> Int64[Tensor, "batch 256"]:
    """Invert values from the threshold on."""
    value = levels(threshold.device)
    return torch.where(value < threshold[:, None], value, 255 - value)


def solarize_add(add: Int64[Tensor, batch]) -> Int64[Tensor, "batch 256"]:
    """Add to the values below 128."""
    value = levels(add.device)
    return torch.where(value < 128, (value + add[:, None]).clamp(max=255), value)
