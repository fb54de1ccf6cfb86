"""How large a step a block takes: the scale s of the normalisation before its attention, followed while it trains.

A norm multiplies token i by 1/σ_i and feature j by its weight, so H acts as s·H with s up to max 1/σ_i · max |weight|.
Corollary 3 then asks for sλ ∈ [−1, 0) (docs/theory.md, section 5). σ belongs to the data, so s is an average over the
batches of training, kept with Θ and ψ; in evaluation it stands still, and baked weights are ordinary ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from unsmooth.models.taps import find
from unsmooth.models.view import LayerView
from unsmooth.models.weights import Norm

if TYPE_CHECKING:
    from unsmooth.control.spectral import SpectralControl

MOMENTUM = 0.1  # of each batch's scale in the average


class NormScale:
    """A hook before one layer's norm; a block whose attention has none keeps s = 1."""

    def __init__(self, control: SpectralControl, index: int, norm: Norm, offset: float) -> None:
        self.control, self.index, self.kind, self.eps, self.offset = control, index, norm.kind, norm.eps, offset

    @torch.no_grad()
    def see(self, module: nn.Module, args: Any) -> None:
        """Take this batch's scale into the average."""
        if not module.training:
            return
        x = args[0].float()
        square = x.var(-1, unbiased=False) if self.kind == "layer" else x.square().mean(-1)
        scale = (square + self.eps).rsqrt().amax()
        weight = getattr(module, "weight", None)
        if weight is not None:
            scale = scale * (weight.float() + self.offset).abs().amax()
        self.control.scale[self.index].lerp_(scale.to(self.control.scale.dtype), MOMENTUM)


def watch_norms(control: SpectralControl, layers: list[LayerView]) -> None:
    """Follow the scale of every controlled layer."""
    for index, layer in enumerate(layers):
        norm, row = layer.weights().norm, layer.attention_row
        module = find(layer.block, row.norm)
        if norm is not None and isinstance(module, nn.Module):
            module.register_forward_pre_hook(NormScale(control, index, norm, row.norm_offset).see)
