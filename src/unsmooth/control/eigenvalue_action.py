"""What an edit does to eigenvalues: scale, flip, shift or bound them, as a map of the blocks of a Schur form."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from unsmooth.errors import OptionError

Act = Callable[[Tensor], Tensor] | None  # of a block of a Schur form; None scales a head whole


def eigenvalue_action(
    scale: float | None, flip: bool, shift: float | None, low: float | None, high: float | None,
    head_scale: float | None,
) -> tuple[tuple[Act, float], str]:  # fmt: skip
    """What one option asks of every block, the factor of whole heads, and both in words; others are refused."""
    bounded = low is not None or high is not None
    asked = [scale is not None, flip, shift is not None, bounded, head_scale is not None]
    if sum(asked) != 1:
        raise OptionError("expected one of scale, flip, shift, low and high (together), head_scale; "
                          f"got {sum(asked)} of them")  # fmt: skip
    for name, value in {"scale": scale, "shift": shift, "low": low, "high": high, "head_scale": head_scale}.items():
        if value is not None and not _usable(value, infinite=name in ("low", "high")):
            raise OptionError(f"{name} must be a finite number, got {value!r}")
    if head_scale is not None:
        return (None, float(head_scale)), f"heads times {head_scale:g}"
    if bounded:
        least, most = (-torch.inf if low is None else low), (torch.inf if high is None else high)
        if least > most:
            raise OptionError(f"low {low} is above high {high}")

        def bound(block: Tensor) -> Tensor:
            real = block.diagonal().mean()
            return (real.clamp(least, most) - real) * torch.eye(len(block), dtype=block.dtype)

        said = [f"at {side} {value:g}" for side, value in (("least", low), ("most", high)) if value is not None]
        return (bound, 1.0), f"real parts {' and '.join(said)}"
    if shift is not None:
        said_shift = f"λ {'−' if shift < 0 else '+'} {abs(shift):g}"
        return (lambda block: shift * torch.eye(len(block), dtype=block.dtype), 1.0), said_shift
    factor = -1.0 if flip else float(scale or 0.0)
    return (lambda block: (factor - 1) * block, 1.0), "−λ" if flip else f"{factor:g} λ"


def _usable(value: float, infinite: bool) -> bool:
    """Whether it is a number, and a finite one unless a bound may be infinite."""
    try:
        return math.isfinite(value) or (infinite and not math.isnan(value))
    except TypeError:
        return False
