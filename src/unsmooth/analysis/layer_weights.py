"""A layer's weights, for explaining and attributing: checked, cast, and folded by `unsmooth.theory.folding`."""

from __future__ import annotations

import torch
from torch import Tensor

from unsmooth.errors import WeightsError
from unsmooth.models import HeadWeights, Norm
from unsmooth.theory.folding import Folded, fold


def fold_weights(weights: HeadWeights) -> Folded:
    """Everything linear around the attention, inside W_V and W_proj."""
    w = weights
    return fold(
        w.w_v, w.w_proj, b_v=w.b_v, b_proj=w.b_proj, norm=w.norm, out_norm=w.out_norm, out_scale=w.out_scale,
        post_norm=w.post_norm,
    )  # fmt: skip


def cast_weights(weights: HeadWeights, dtype: torch.dtype | None = None) -> HeadWeights:
    """A detached copy in another dtype; half precision becomes float32 unless a dtype is given."""
    w, half = weights, weights.w_v.dtype in (torch.bfloat16, torch.float16)
    dtype = dtype or (torch.float32 if half else w.w_v.dtype)

    def tensor(value: Tensor | None) -> Tensor | None:
        return None if value is None else value.detach().to(dtype)

    def norm(value: Norm | None) -> Norm | None:
        return None if value is None else Norm(value.kind, tensor(value.weight), tensor(value.bias), value.eps)

    return HeadWeights(
        w.w_v.detach().to(dtype), w.w_proj.detach().to(dtype), tensor(w.b_v), tensor(w.b_proj), norm(w.norm),
        norm(w.out_norm), tensor(w.out_scale), norm(w.post_norm),
    )  # fmt: skip


def check_finite(layer: str, w: HeadWeights) -> None:
    """Weights that hold NaN or infinity have no spectrum: say which layer's and which."""
    parts = {"W_V": w.w_v, "W_proj": w.w_proj, "b_V": w.b_v, "b_proj": w.b_proj, "LayerScale": w.out_scale}
    for name, norm in (("norm", w.norm), ("output norm", w.out_norm), ("norm after the sum", w.post_norm)):
        if norm is not None:
            parts |= {f"weight of the {name}": norm.weight, f"bias of the {name}": norm.bias}
    bad = [name for name, value in parts.items() if value is not None and not bool(torch.isfinite(value).all())]
    if bad:
        raise WeightsError(
            f"{layer}: {' and '.join(bad)} hold NaN or infinity, so H has no spectrum: check the weights that "
            "were loaded (a diverged training, a damaged file)"
        )
