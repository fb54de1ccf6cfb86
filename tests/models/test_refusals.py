"""Models refused by name: with the reason and the place, and under names that their libraries know."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from model_cases import TEXT, hf
from torch import nn

from unsmooth.errors import UnknownModelError
from unsmooth.models import view
from unsmooth.models.refusals import REFUSED

NAMES = sorted({name for refused in REFUSED for name in refused.classes})
_NEWER = {"timm.DiffParallelScalingBlock"}  # not in every release that we support


@pytest.mark.parametrize("name", NAMES)
def test_a_refused_class_is_its_librarys(name: str) -> None:
    import timm  # noqa: F401
    import torchvision  # noqa: F401
    import transformers

    library, _, cls = name.partition(".")
    if library == "transformers":
        assert hasattr(transformers, cls)
        return
    loaded: list[Any] = [module for path, module in list(sys.modules.items()) if path.startswith(f"{library}.models.")]
    assert any(cls in vars(module) for module in loaded) or name in _NEWER


@pytest.mark.parametrize("name", ["swin_tiny_patch4_window7_224", "mvitv2_tiny", "pvt_v2_b0", "hiera_tiny_224"])
def test_models_that_merge_tokens_are_refused_with_the_reason(name: str) -> None:
    import timm

    with torch.device("meta"):
        model = timm.create_model(name)
    with pytest.raises(UnknownModelError, match=rf"^{type(model).__name__} is not supported: .* merges tokens .*ViT"):
        view(model)


def test_a_merging_part_is_refused_with_its_place() -> None:
    swin = hf("Swin", embed_dim=8, depths=[1, 1], num_heads=[2, 2], image_size=16, patch_size=4, window_size=2)()
    with pytest.raises(UnknownModelError, match=r"Sequential is not supported: SwinModel \(at '0'\) merges tokens"):
        view(nn.Sequential(swin))


def test_values_that_are_turned_by_their_position_are_refused() -> None:
    model = hf("RoFormer", rotary_value=True, **TEXT)()
    with pytest.raises(
        UnknownModelError, match=r"found RoFormerLayer, expected .*attention\.self\.rotary_value = False"
    ):
        view(model)
