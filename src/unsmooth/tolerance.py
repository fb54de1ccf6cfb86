"""The one tolerance that code and tests share: it comes from dtype and size."""

from __future__ import annotations

import torch


def tolerance(dtype: torch.dtype, size: int, factor: float = 10.0) -> float:
    """`factor · size · eps`, the error that `size` roundings of this dtype may add up to.

    >>> tolerance(torch.float64, 100) < 1e-12
    True
    """
    return factor * size * torch.finfo(dtype).eps
