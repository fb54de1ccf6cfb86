"""Short cuts of training steps, a ViT's and a text encoder's (encoder.py), taken where they apply.

What they are worth on one H200, recipe cifar100, plain: 5.69 ms a step with them, 7.50 without, both compiled and
captured (1.318×; `benchmarks.train_step --device cuda --fast`). They stay while that is at least 1.15×.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from unsmooth.training.engine.step import Speed
from unsmooth.training.engine.task import FastPath
from unsmooth.training.fast.bf16_weights import BF16Weights, plain_linears
from unsmooth.training.fast.shortcuts import Shortcuts

NAMES = ("class_token", "tiled", "fused")  # described in shortcuts.py


class FastViT(FastPath):
    """All short cuts that `speed` allows and the model admits; kernels need CUDA and bfloat16."""

    def __init__(self, model: nn.Module, speed: Speed, half: bool) -> None:
        wanted = dict.fromkeys(NAMES if speed.shortcuts is None else speed.shortcuts, True)
        wanted["tiled"] = "tiled" in wanted and half and speed.attention is None
        self.shortcuts = Shortcuts(model, **wanted)
        self.halves = BF16Weights(plain_linears(model) if self.shortcuts.fused else [])

    def __enter__(self) -> None:
        self.shortcuts.__enter__()
        self.halves.__enter__()

    def __exit__(self, *error: object) -> None:
        self.halves.__exit__(*error)
        self.shortcuts.__exit__(*error)

    def take_gradients(self) -> None:
        """Those of the weights' copies."""
        self.halves.take_gradients()

    def describe(self) -> dict[str, Any]:
        """What is taken."""
        taken = {"class_token": self.shortcuts.class_token, "fused": self.shortcuts.fused}
        return taken | ({"attention": "tiled"} if self.shortcuts.tiled else {})
