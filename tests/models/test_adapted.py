"""Models whose layers an adapter wraps are explained by what they multiply by, and edited only once it is merged."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
import torch
from models.packed import IDS, swapped
from torch import Tensor, nn

import unsmooth
from unsmooth.errors import WeightsError
from unsmooth.models import view


class LoRA(nn.Module):
    """A layer with a low-rank update, as PEFT keeps it: the weight that it shows is not what it multiplies by."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features, self.base_layer = base.in_features, base.out_features, base
        self.down, self.up = nn.Linear(base.in_features, 2, bias=False), nn.Linear(2, base.out_features, bias=False)
        self.dropout = nn.Dropout(0.5)

    @property
    def weight(self) -> Tensor:
        return self.base_layer.weight

    @property
    def bias(self) -> Tensor | None:
        return self.base_layer.bias

    def forward(self, x: Tensor) -> Tensor:
        return self.base_layer(x) + self.up(self.down(self.dropout(x)))


def merged(layer: nn.Linear) -> nn.Linear:
    adapted = LoRA(layer)
    layer.weight.data += adapted.up.weight.data @ adapted.down.weight.data
    return layer


def made(make: Any) -> Any:
    torch.manual_seed(1)
    return swapped(make)


def test_an_adapted_model_is_explained_and_attributed_as_the_merged_one() -> None:
    ours, twin = made(LoRA), made(merged)
    for work in (unsmooth.measure, unsmooth.explain, unsmooth.attribute):
        a, b = (work(model, [IDS]).frame().select_dtypes("number") for model in (ours, twin))
        pd.testing.assert_frame_equal(a, b, rtol=1e-3, atol=1e-4)


def test_its_weights_have_gradients_and_no_dropout_while_it_trains() -> None:
    model = made(LoRA).train()
    first, second = (view(model).layers[0].weights() for _ in range(2))
    torch.testing.assert_close(first.w_v, second.w_v, rtol=0, atol=0)
    first.w_v.sum().backward()
    assert model.layers[0].self_attn.v_proj.up.weight.grad.abs().max() > 0
    assert model.layers[0].self_attn.v_proj.dropout.training


def test_it_is_edited_only_once_it_is_merged() -> None:
    with pytest.raises(WeightsError, match=r"wrapped by an adapter.*merge_and_unload"):
        unsmooth.edit(made(LoRA), high=0.0)
