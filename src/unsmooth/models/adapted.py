"""Layers that an adapter wraps (PEFT's LoRA, DoRA, IA3): what they multiply by is not the weight that they hold."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from unsmooth.models.quantised import Affine


def is_adapted(module: object) -> bool:
    """Whether a layer computes with another layer that it wraps, and something of its own beside it."""
    return isinstance(getattr(module, "base_layer", None), nn.Module)


def effective(layer: nn.Module, device: torch.device, dtype: torch.dtype) -> Affine:
    """What it multiplies by and adds, from its outputs on the unit vectors and on 0; with gradients.

    >>> affine = effective(nn.Linear(3, 2), torch.device("cpu"), torch.float32)
    >>> affine.weight.shape, affine.bias.shape
    (torch.Size([2, 3]), torch.Size([2]))
    """
    unit = torch.eye(int(layer.in_features), device=device, dtype=dtype)  # type: ignore[arg-type]
    modes = {part: part.training for part in layer.modules()}
    try:
        layer.eval()  # an adapter's own dropout
        found: Tensor = layer.forward(torch.cat([torch.zeros_like(unit[:1]), unit])[None])[0]  # without its hooks
    finally:
        for part, mode in modes.items():
            part.training = mode
    return Affine((found[1:] - found[0]).mT, found[0] if bool((found[0] != 0).any()) else None, 0.0)
