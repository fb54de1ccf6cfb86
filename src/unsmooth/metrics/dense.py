"""Tensors that can be computed with: torch's own, dense, with values in them, of the shape that features have."""

from __future__ import annotations

from collections.abc import Sequence

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


def check_shapes(x: Tensor, mask: Tensor | None) -> None:
    """Raise FeatureError unless x is (..., tokens, dim), dense, floating, not empty, and the mask fits it."""
    require_dense(x, "features")
    if x.ndim < 2 or not x.is_floating_point():
        raise FeatureError(
            f"expected floating-point features of shape (..., tokens, dim), got {x.dtype} of shape "
            f"{tuple(x.shape)}: pass hidden states, tokens before the last axis"
        )
    if 0 in x.shape[-2:]:
        raise FeatureError(f"expected at least one token and one feature, got shape {tuple(x.shape)}")
    if mask is None:
        return
    require_dense(mask, "mask")
    if mask.dtype != torch.bool:
        raise FeatureError(f"expected a bool mask (True = kept), got {mask.dtype}: pass mask.bool()")
    if not fits(mask.shape, x.shape[:-1]):
        raise FeatureError(
            f"expected a mask of shape {tuple(x.shape[:-1])} (one value per token), got {tuple(mask.shape)}"
        )


def fits(mask: Sequence[int], tokens: Sequence[int]) -> bool:
    """Whether a mask's shape broadcasts to the tokens' shape, its own token axis being full.

    >>> fits((5,), (2, 5)), fits((2, 1), (2, 5))
    (True, False)
    """
    if not mask or len(mask) > len(tokens) or mask[-1] != tokens[-1]:
        return False
    return all(m in (1, t) for m, t in zip(reversed(mask), reversed(tokens), strict=False))
