"""How much memory an operation takes beside what it was given; the tests of long inputs hold a bound on it."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LargestNew(TorchDispatchMode):
    """The bytes of the largest tensor that any operation makes; views of `x` are none."""

    def __init__(self, x: Tensor):
        super().__init__()
        self.known, self.bytes = x.untyped_storage().data_ptr(), 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for made in tree_leaves(out):
            if isinstance(made, Tensor) and made.untyped_storage().data_ptr() != self.known:
                self.bytes = max(self.bytes, made.untyped_storage().nbytes())
        return out
