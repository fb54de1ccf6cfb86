"""Normal numbers for the parameters of a control."""

from __future__ import annotations

import torch
from torch import Tensor


def draw(to: Tensor, std: float, generator: torch.Generator | None) -> None:
    """Fill `to` with N(0, std²), drawn where the generator is."""
    elsewhere = generator is not None and generator.device.type != to.device.type
    drawn = torch.empty_like(to, device=generator.device) if generator is not None and elsewhere else to
    drawn.normal_(0.0, std, generator=generator)
    if elsewhere:
        to.copy_(drawn)
