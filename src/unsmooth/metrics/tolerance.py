"""The one tolerance that code and tests share, from dtype and size; and which eigenvalues count as 0."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Complex
from torch import Tensor


def tolerance(dtype: torch.dtype, size: int, factor: float = 10.0) -> float:
    """`factor · size · eps`, the error that `size` roundings of this dtype may add up to.

    >>> tolerance(torch.float64, 100) < 1e-12
    True
    """
    return factor * size * torch.finfo(dtype).eps


def is_zero(values: Complex[Tensor, " size"]) -> Bool[Tensor, " size"]:
    """Which eigenvalues are 0 up to rounding, beside the largest: they have no side, whatever sign is left of them.

    Weights are kept in 32 bits: where a form of H makes an eigenvalue 0, 1e-7 of the largest is left of it.

    >>> is_zero(torch.tensor([0.5, -1e-8, 0.0, -1e-3])).tolist()
    [False, True, True, False]
    """
    sizes = values.abs()
    return sizes <= 1e-6 * sizes.max() if len(values) else sizes > 0
