"""What a step computes in: bfloat16 where the device has it, float32 elsewhere."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch


def precision_on(device: torch.device, wanted: str) -> str:
    """What matrix products are computed in: on a CPU always float32 (bfloat16 there is slow or not there at all)."""
    return wanted if device.type == "cuda" else "float32"


def as_computed(settings: Mapping[str, Any], hardware: str) -> dict[str, Any]:
    """Settings of a file as its runs were: those of a CPU once said bfloat16, in which no CPU was asked to compute.

    >>> as_computed({"precision": "bf16"}, "CPU x86_64"), as_computed({"precision": "bf16"}, "1 × NVIDIA H200")
    ({'precision': 'float32'}, {'precision': 'bf16'})
    """
    on_cpu = "precision" in settings and re.match(r"(\d+ × )?CPU\b", hardware)
    return {**settings, "precision": "float32"} if on_cpu else dict(settings)


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """bfloat16 matrix products, where the device has them and the precision says so."""
    enabled = precision_on(device, precision) != "float32"
    return torch.autocast(device.type, torch.bfloat16, enabled=enabled, cache_enabled=False)  # a graph outlives a cache
