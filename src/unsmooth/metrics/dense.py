"""Tensors that can be computed with: torch's own, dense, with values in them."""

from __future__ import annotations

import torch
from torch import Tensor

from unsmooth.errors import FeatureError


def require_dense(x: object, what: str) -> None:
    """FeatureError, with what came instead and what makes a dense tensor of it."""
    if not isinstance(x, Tensor):
        made = ": torch.as_tensor makes one of it" if hasattr(x, "__array__") or isinstance(x, list | tuple) else ""
        raise FeatureError(f"{what}: expected a torch tensor, got a {type(x).__name__}{made}")
    if x.is_nested:
        raise FeatureError(f"{what}: expected a dense tensor, got a nested one: pad it, and give a mask")
    if x.layout != torch.strided:
        raise FeatureError(f"{what}: expected a dense tensor, got one of layout {x.layout}: give x.to_dense()")
    if x.is_quantized:
        raise FeatureError(f"{what}: expected a dense tensor, got a quantised one of {x.dtype}: give x.dequantize()")
    if x.is_floating_point() and x.element_size() < 2:
        raise FeatureError(f"{what}: expected 16 bits or more, got {x.dtype}: give x.float() times its scale")
    if x.is_meta:
        raise FeatureError(f"{what}: the tensor is on the meta device, without values: load or compute them first")


def require_real(x: object, what: str) -> None:
    """FeatureError unless `x` is a dense tensor of floating-point numbers, and has any."""
    require_dense(x, what)
    assert isinstance(x, Tensor)
    if not x.is_floating_point() or x.numel() == 0:
        raise FeatureError(
            f"{what}: expected floating-point numbers, got {x.dtype} of shape {tuple(x.shape)}"
            + ("" if x.is_floating_point() else ": give x.float()")
        )
