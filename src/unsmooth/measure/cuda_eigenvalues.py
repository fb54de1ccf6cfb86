"""Eigenvalues of many small symmetric matrices on an NVIDIA GPU, by a kernel compiled at run time.

torch.linalg.eigvalsh solves a batch of such matrices one after the other, which leaves the GPU idle; here
each multiprocessor takes a matrix of its own (see eigenvalues.cu).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

LARGEST = 512  # rows; the columns of a row are spread over a warp's registers


@dataclass(frozen=True)
class Shape:
    """How the kernel is compiled: columns per lane, warps per block, where the matrix lives."""

    tiles: int
    warps: int
    in_shared: bool

    def shared_bytes(self, side: int) -> int:
        """Shared memory of one block, as eigenvalues.cu lays it out."""
        padded = 32 * self.tiles
        work = 16 * padded + 4 * 32 * self.warps + 8 * ((self.warps + 5) * padded + 32)
        return work + (8 * (side * (side + 1) // 2) if self.in_shared else 0)


# The first that fits is taken: few variants, since each is compiled once per process (about a second).
SHAPES = (Shape(2, 8, True), Shape(4, 16, True), Shape(7, 16, True), Shape(9, 16, False), Shape(16, 8, False))


def choose_shape(side: int, shared_limit: int) -> Shape | None:
    """The variant for matrices of this size, or None if there is none.

    >>> choose_shape(197, 232_448), choose_shape(577, 232_448)
    (Shape(tiles=7, warps=16, in_shared=True), None)
    """
    for shape in SHAPES:
        if side <= 32 * shape.tiles and shape.shared_bytes(side) <= shared_limit:
            return shape
    return None


def cuda_eigenvalues(matrices: Float[Tensor, "matrix side side"]) -> Float[Tensor, "matrix side"] | None:
    """Ascending eigenvalues of positive semidefinite matrices (lower triangles); None if the kernel cannot do it.

    Their square roots are exact to 1e-9 of the largest; a negative eigenvalue (rounding of a zero) gives 0, a
    matrix with NaN gives NaN. Does not wait for the device.
    """
    side = matrices.shape[-1]
    kernel = _kernel(side, matrices.device.index) if matrices.dtype == torch.float64 else None
    if kernel is None:
        return None
    launch, shape = kernel
    values = matrices.new_empty(matrices.shape[:-1])
    if len(matrices):
        with torch.cuda.device(matrices.device):
            grid, block = (len(matrices), 1, 1), (32 * shape.warps, 1, 1)
            work = matrices.contiguous() if shape.in_shared else matrices.clone(memory_format=torch.contiguous_format)
            launch(grid, block, [work, values, side], shape.shared_bytes(side))
    return values


def _kernel(side: int, device: int) -> tuple[Any, Shape] | None:
    limit = getattr(torch.cuda.get_device_properties(device), "shared_memory_per_block_optin", 0)
    shape = choose_shape(side, limit)
    compiled = None if shape is None else _compile(shape, device, limit)
    return None if shape is None or compiled is None else (compiled, shape)


@cache
def _compile(shape: Shape, device: int, limit: int) -> Any | None:
    """The kernel, loaded on this device; None (and a warning) where torch cannot compile one."""
    constants = {"TILES": shape.tiles, "WARPS": shape.warps, "IN_SHARED": int(shape.in_shared)}
    defines = "".join(f"#define {name} {value}\n" for name, value in constants.items())
    body = files("unsmooth.measure").joinpath("eigenvalues.cu").read_text(encoding="utf-8")
    source = f'extern "C" {{\n{defines}{body}}}\n'  # some versions of torch put extern "C" before anything else
    try:
        with torch.cuda.device(device):
            kernel = torch.cuda._compile_kernel(source, "eigenvalues")
            kernel.set_shared_memory_config(limit)
    except (AttributeError, OSError, RuntimeError) as error:
        warnings.warn(
            f"effective rank runs on the CPU's threads, which is slower: torch {torch.__version__} could not "
            f"compile the GPU kernel ({error})",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    return kernel
