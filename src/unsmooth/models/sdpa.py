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


class SdpaMatrices:
    """The matrices of one call of the fused function, formed for the heads and queries that are asked for."""

    def __init__(
        self,
        query: Float[Tensor, "batch head query key_dim"],
        key: Float[Tensor, "batch kv_head key key_dim"],
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> None:
        self.query, self.key, self.mask, self.is_causal, self.scale = query, key, attn_mask, is_causal, scale
        self.group = query.shape[-3] // key.shape[-3] if enable_gqa else 1
        self.shape = torch.Size([*query.shape[:-1], key.shape[-2]])
        self.device = query.device
        # the softmax of half-precision scores would sum to 1 in half precision only
        self.dtype = torch.promote_types(query.dtype, torch.float32)

    def __call__(self, heads: slice, queries: slice) -> Float[Tensor, "batch some query key"]:
        """These rows of A, in float32 at least."""
        first, last, _ = heads.indices(self.shape[1])
        row, end, _ = queries.indices(self.shape[2])
        query = self.query[:, heads, queries].to(self.dtype)
        shared = torch.arange(first, last, device=self.device) // self.group
        scores = query @ self.key[:, shared].to(self.dtype).mT
        scores *= query.shape[-1] ** -0.5 if self.scale is None else self.scale
        if self.is_causal:
            keys = torch.arange(self.shape[3], device=self.device)
            scores.masked_fill_(keys > keys[row:end, None], -torch.inf)
        if self.mask is not None:
            mask = self.mask.expand(self.shape)[:, heads, queries]
            scores = scores.masked_fill_(~mask, -torch.inf) if mask.dtype == torch.bool else scores.add_(mask)
        return scores.softmax(-1)

    def first(self, count: int | None) -> SdpaMatrices:
        """Of the first inputs only."""
        if count is None or count >= self.shape[0]:
            return self
        mask = None if self.mask is None else self.mask.expand(self.shape)[:count]
        return SdpaMatrices(
            self.query[:count], self.key[:count], self.key, mask, 0.0, self.is_causal, self.scale, self.group > 1
        )


class ShowSdpa(TorchFunctionMode):
    """Inside, the matrix of a layer's one call of the fused function is formed beside it and handed over.

    In parts, `SdpaMatrices` are handed over in its place.
    """

    def __init__(self, show: Callable[[int, Any], object], in_parts: bool = False) -> None:
        super().__init__()
        self.show, self.form = show, SdpaMatrices if in_parts else attention_matrix
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
            self.show(self.layer, self.form(*args, **(kwargs or {})))
        return func(*args, **(kwargs or {}))
