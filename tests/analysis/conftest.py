"""A small ViT with weights that a freshly made one lacks, and its explanation."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from unsmooth.analysis import Explanation, explain


@pytest.fixture(scope="module")
def vit() -> nn.Module:
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    model = timm.create_model(
        "vit_tiny_patch16_224", img_size=48, embed_dim=24, depth=2, num_heads=3, num_classes=0, init_values=0.3
    )
    for block in model.blocks:  # weights that a freshly made model lacks
        nn.init.normal_(block.norm1.weight)
        nn.init.normal_(block.norm1.bias)
        nn.init.normal_(block.attn.qkv.weight, std=0.3)
        nn.init.normal_(block.attn.qkv.bias)
        nn.init.normal_(block.ls1.gamma)
    return model.double()


@pytest.fixture(scope="module")
def found(vit: nn.Module) -> Explanation:
    torch.manual_seed(1)
    return explain(vit, [torch.randn(2, 3, 48, 48), torch.randn(1, 3, 48, 48)], spectra=2)
