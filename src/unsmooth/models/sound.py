"""Sound is masked by the sample or spectrum, features by the token: what is between them is the model's own rule."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

SOUND = frozenset({"input_values", "input_features"})  # how Hugging Face calls waves and spectra
_RULE = "_get_feat_extract_output_lengths"


def padding_of_sound(kept: Bool[Tensor, "batch sample"], model: nn.Module) -> Bool[Tensor, "batch token"]:
    """Which tokens are padding, as a Hugging Face model masks them; the samples themselves where it has no rule."""
    owner = next((part for part in model.modules() if hasattr(part, _RULE)), None)
    lengths = torch.cat([kept.sum(-1), torch.full((1,), kept.shape[1], device=kept.device)])  # and that of no padding
    frames = None if owner is None else _frames(owner, lengths)
    if frames is None:
        return ~kept
    # SEW's blocks see so many frames as one, which is no padding as long as one of them is none.
    squeezed = int(getattr(getattr(owner, "config", None), "squeeze_factor", 1))
    return torch.arange(int(frames[-1]) // squeezed, device=kept.device) * squeezed >= frames[:-1, None]


def _frames(owner: nn.Module, lengths: Int[Tensor, " length"]) -> Int[Tensor, " length"] | None:
    """How many frames the convolutions make of so many samples."""
    rule: Callable[..., Any] = getattr(owner, _RULE)
    # An adapter stands behind the blocks, not before them.
    extra = {"add_adapter": False} if "add_adapter" in inspect.signature(rule).parameters else {}
    try:
        frames = rule(lengths, **extra)
    except (TypeError, ValueError, RuntimeError):  # Moonshine's is for one length
        return None
    return frames if isinstance(frames, Tensor) else None
