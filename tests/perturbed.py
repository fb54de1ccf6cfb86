"""Another library behind the numbers, imitated: what LAPACK is given is off by one rounding, entry by entry.

Two LAPACKs differ by such amounts. A test that fails under them holds on one machine only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor

ROUTINES = ("eig", "eigh", "eigvals", "eigvalsh", "inv", "lstsq", "qr", "solve", "svd", "svdvals")


def nudge(x: Tensor) -> Tensor:
    """x · (1 ± eps), the signs a fixed pattern of the shape: the same input is always nudged alike.

    The pattern is symmetric, so that symmetric matrices stay symmetric. Zeros, NaN and infinity stay what they are.
    """
    signs = torch.arange(x.shape[-1]).add(torch.arange(x.shape[-2])[:, None]).mul(7).remainder(5).remainder(2)
    # eps of float32 is 1.2e-7; exact integers move too, which no arithmetic does to the matrices that tests care about
    return x * (1 + (2 * signs.to(x.device) - 1) * torch.finfo(x.dtype).eps).to(x.dtype)


def nudged(routine: Callable[..., Any]) -> Callable[..., Any]:
    """The routine with its first argument off by one rounding."""

    def call(x: Tensor, *arguments: Any, **options: Any) -> Any:
        return routine(nudge(x) if x.ndim > 1 else x, *arguments, **options)

    return call


@contextmanager
def other_library() -> Iterator[None]:
    """Inside, every factorisation sees nudged matrices."""
    with mock.patch.multiple(torch.linalg, **{name: nudged(getattr(torch.linalg, name)) for name in ROUTINES}):
        yield
