"""Small models and inputs that the measuring tests share."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

timm = pytest.importorskip("timm")
transformers = pytest.importorskip("transformers")


def vit(**options: Any) -> nn.Module:
    settings = {"img_size": 16, "patch_size": 4, "embed_dim": 24, "depth": 3, "num_heads": 3, "num_classes": 5}
    return timm.models.VisionTransformer(**(settings | options))


def bert(layers: int = 2) -> nn.Module:
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=24, num_hidden_layers=layers, num_attention_heads=3, intermediate_size=32
    )
    return transformers.BertModel(config)


def images(batches: int = 3, size: int = 2) -> list[torch.Tensor]:
    return [torch.randn(size, 3, 16, 16) for _ in range(batches)]


def words(batches: int = 2) -> list[dict[str, torch.Tensor]]:
    mask = torch.tensor([[1] * 7, [1] * 5 + [0] * 2])
    return [{"input_ids": torch.randint(50, (2, 7)), "attention_mask": mask} for _ in range(batches)]
