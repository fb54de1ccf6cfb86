from __future__ import annotations

import pytest
import torch

from unsmooth.analysis import explain
from unsmooth.analysis.explaining.dominating_types import dominating_types
from unsmooth.analysis.explaining.tables import type_shares


def test_the_quick_count_equals_the_explanations_count() -> None:
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    model = timm.create_model("vit_tiny_patch16_224", img_size=48, embed_dim=24, depth=2, num_heads=3, num_classes=0)
    torch.nn.init.normal_(model.blocks[1].attn.qkv.weight)
    batches = [torch.randn(2, 3, 48, 48), torch.randn(1, 3, 48, 48)]
    quick = type_shares(dominating_types(model, batches))
    full = explain(model, batches, spectra=3).type_shares()
    assert quick.equals(full)


def test_random_initialisation_is_all_type_one_as_published() -> None:
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    model = timm.create_model("vit_tiny_patch16_224", img_size=64, depth=2, num_classes=0)
    shares = type_shares(dominating_types(model, [torch.randn(2, 3, 64, 64)])).set_index("kind")
    assert shares.at["smoothing", "share"] == 1.0
