"""Calling somebody's model without leaving a trace: mode restored, no gradients, inputs where the weights are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from unsmooth.errors import UnsmoothError


@contextmanager
def evaluating(model: nn.Module) -> Iterator[nn.Module]:
    """Evaluation mode without gradients; every submodule's own mode is restored, also after an exception."""
    modes = {module: module.training for module in model.modules()}
    try:
        model.eval()
        with torch.no_grad():
            yield model
    finally:
        for module, mode in modes.items():
            module.training = mode


def call(model: nn.Module, batch: Any) -> Any:
    """Call a model on a batch: keyword inputs for a dict, the first item of a tuple, else the batch itself.

    Labels are not passed on, nor is `special_tokens_mask`, which tokenizers give but models don't take.
    """
    if isinstance(batch, Mapping):
        return model(**{name: value for name, value in batch.items() if name not in ("special_tokens_mask", "labels")})
    if isinstance(batch, tuple | list):
        return model(batch[0])
    return model(batch)


def to_model(batch: Any, model: nn.Module) -> Any:
    """The batch on the model's device, floating inputs in its dtype; of a tuple, the input only."""
    weight = next(model.parameters())
    if isinstance(batch, Tensor):
        return batch.to(weight.device, weight.dtype if batch.is_floating_point() else None, non_blocking=True)
    if isinstance(batch, Mapping):
        return {name: to_model(value, model) for name, value in batch.items() if isinstance(value, Tensor)}
    if isinstance(batch, tuple | list) and batch:
        return (to_model(batch[0], model),)
    raise UnsmoothError(
        "a batch must be a tensor, a dict of keyword inputs, or a tuple that starts with the input; "
        f"got {type(batch).__name__}"
    )
