"""The learning rate of every step, known before the first one."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float32
from torch import Tensor


def warmup_cosine(peak: float, total: int, warm: int) -> Float32[Tensor, step]:
    """Linear warm-up, then half a cosine down to zero.

    >>> [round(float(r), 2) for r in warmup_cosine(1.0, total=12, warm=4)]
    [0.25, 0.5, 0.75, 1.0, 1.0, 0.96, 0.85, 0.69, 0.5, 0.31, 0.15, 0.04]
    """
    rates = []
    for step in range(total):
        if step < warm:
            rates.append((step + 1) / warm)
        else:
            rates.append(0.5 * (1 + math.cos(math.pi * (step - warm) / (total - warm))))
    return peak * torch.tensor(rates)


def triangle(peak: float, total: int, start: float = 0.25, top: float = 0.75) -> Float32[Tensor, step]:
    """From a share `start` of the peak up to it at the share `top` of the steps, then down to zero (Geiping 2023).

    >>> [round(float(r), 2) for r in triangle(1.0, total=8)]
    [0.25, 0.38, 0.5, 0.62, 0.75, 0.88, 1.0, 0.5]
    """
    at = torch.arange(total, dtype=torch.float64) / max(1, total)
    return (peak * torch.minimum(start + (1 - start) * at / top, (1 - at) / (1 - top))).float()
