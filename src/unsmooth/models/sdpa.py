"""Attention matrices of modules that call `F.scaled_dot_product_attention`, whose kernels never form them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from unsmooth.errors import WeightsError


def attention_matrix(
    query: Float[Tensor, "*batch head query key_dim"],
    key: Float[Tensor, "*batch kv_head key key_dim"],
    value: Float[Tensor, "*batch kv_head key value_dim"],
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Float[Tensor, "*batch head query key"]:
    """The matrix by which the fused function multiplies `value` before dropout, as PyTorch documents it."""
    key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3) if enable_gqa else key
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = scores.masked_fill(~seen, -torch.inf)
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -torch.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
    return scores.softmax(-1)


class ShowSdpa(TorchFunctionMode):
    """Inside, the matrix of a layer's one call of the fused function is formed beside it and handed over."""

    def __init__(self, show: Callable[[int, Tensor], object]) -> None:
        super().__init__()
        self.show = show
        self.layer: int | None = None
        self.calls = 0

    def begin(self, layer: int) -> None:
        """The layer's attention starts."""
        self.layer, self.calls = layer, 0

    def end(self, name: str) -> None:
        """It is over: it must have called the function once."""
        self.layer = None
        if self.calls != 1:
            raise WeightsError(
                f"{name}: expected its attention module to call F.scaled_dot_product_attention once, it did "
                f"{self.calls} times: describe in its row where the matrix can be seen (maps=Maps(...))"
            )

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Called by PyTorch for every function of its own."""
        if func is F.scaled_dot_product_attention and self.layer is not None:
            self.calls += 1
            self.show(self.layer, attention_matrix(*args, **(kwargs or {})))
        return func(*args, **(kwargs or {}))
