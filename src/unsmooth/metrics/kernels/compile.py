"""CUDA kernels compiled at run time by torch's own NVRTC; where that fails there is always another way."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import torch


class Kernel:
    """One compiled kernel on one device."""

    def __init__(self, function: Any):
        self._function = function

    def launch(self, blocks: int, threads: int, arguments: Sequence[object], shared_bytes: int) -> None:
        """Enqueue on the current stream; tensors become pointers."""
        self._function((blocks, 1, 1), (threads, 1, 1), list(arguments), shared_bytes)


def shared_limit(device: int) -> int:
    """The largest shared memory one block may ask for."""
    return int(getattr(torch.cuda.get_device_properties(device), "shared_memory_per_block_optin", 0))


@cache
def compiled(
    name: str, constants: tuple[tuple[str, int], ...], device: int, function: str | None = None
) -> Kernel | None:
    """The kernel of NAME.cu with these constants, once per process; None (and a warning) if torch cannot.

    `function` names one of several in a file, which ask for no shared memory when they are launched.
    """
    defines = "".join(f"#define {key} {value}\n" for key, value in constants)
    body = files("unsmooth.metrics.kernels").joinpath(f"{name}.cu").read_text(encoding="utf-8")
    source = f'extern "C" {{\n{defines}{body}}}\n'  # some versions of torch put extern "C" before anything else
    try:
        with torch.cuda.device(device):
            kernel = torch.cuda._compile_kernel(source, function or name)
            if function is None:  # a kernel with shared memory of a size that is known at compile time has enough
                kernel.set_shared_memory_config(shared_limit(device))
    except (AttributeError, OSError, RuntimeError) as error:
        warnings.warn(
            f"measuring on the GPU will be slower: torch {torch.__version__} could not compile a kernel ({error})",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    return Kernel(kernel)
