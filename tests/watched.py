"""A small model to watch, an input to watch it on, and a training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


def vit(**options: Any) -> nn.Module:
    import timm

    torch.manual_seed(0)
    shape = {"img_size": 16, "patch_size": 4, "embed_dim": 32, "num_heads": 4, "depth": 2, "num_classes": 5}
    return timm.create_model("vit_tiny_patch16_224", **{**shape, **options})


def probe() -> Tensor:
    return torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(1))


def train(model: nn.Module, steps: int, after: Callable[[], None] = lambda: None) -> nn.Module:
    """AdamW on noise drawn from the global generator, dropout and all."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model.train()
    for _ in range(steps):
        x, y = torch.randn(4, 3, 16, 16), torch.randint(5, (4,))
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
        after()
    return model
