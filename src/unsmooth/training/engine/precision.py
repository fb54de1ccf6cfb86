"""What a step computes in: bfloat16 where the device has it, float32 elsewhere."""

from __future__ import annotations

import torch


def precision_on(device: torch.device, wanted: str) -> str:
    """What matrix products are computed in: on a CPU always float32 (bfloat16 there is slow or not there at all)."""
    return wanted if device.type == "cuda" else "float32"


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """bfloat16 matrix products, where the device has them and the precision says so."""
    enabled = precision_on(device, precision) != "float32"
    return torch.autocast(device.type, torch.bfloat16, enabled=enabled, cache_enabled=False)  # a graph outlives a cache
