"""Eigenvalues of many small symmetric matrices on an NVIDIA GPU.

torch.linalg.eigvalsh solves a batch of such matrices one after the other, which leaves the GPU idle; here
each multiprocessor takes a matrix of its own (see eigenvalues.cu).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from unsmooth.metrics.kernels.compile import compiled, shared_limit

LARGEST = 512  # rows; the columns of a row are spread over a warp's registers


@dataclass(frozen=True)
class Shape:
    """How the kernel is compiled: columns per lane, warps per block, rows at a time, where the matrix lives."""

    tiles: int
    warps: int
    rows: int
    in_shared: bool

    def shared_bytes(self, side: int) -> int:
        """Shared memory of one block, as eigenvalues.cu lays it out."""
        padded = 32 * self.tiles
        work = 16 * padded + 4 * 32 * self.warps + 8 * ((self.warps + 7) * padded + 32)
        side = self.pitch(side)
        return work + (8 * (side * (side + 1) // 2) if self.in_shared else 0)

    def pitch(self, side: int) -> int:
        """Rows rounded up to what a warp takes at a time."""
        return -(-side // self.rows) * self.rows


# The first that fits is taken: the quickest seen on an H200 (benchmarks/NOTES.md), and few, since each is compiled
# once per process, which takes about a second.
SHAPES = (
    Shape(2, 4, 4, True),
    Shape(4, 8, 4, True),
    Shape(7, 16, 4, True),
    Shape(9, 12, 4, False),
    Shape(16, 8, 4, False),
)


def choose_shape(side: int, limit: int) -> Shape | None:
    """The variant for matrices of this size under a limit of shared memory, or None if there is none.

    >>> choose_shape(197, 232_448), choose_shape(577, 232_448)
    (Shape(tiles=7, warps=16, rows=4, in_shared=True), None)
    """
    for shape in SHAPES:
        if side <= 32 * shape.tiles and shape.shared_bytes(side) <= limit:
            return shape
    return None


def cuda_eigenvalues(matrices: Float[Tensor, "matrix side side"]) -> Float[Tensor, "matrix side"] | None:
    """Ascending eigenvalues of positive semidefinite matrices (lower triangles); None if the kernel cannot do it.

    Their square roots are exact to 1e-8 of the largest; a negative eigenvalue (rounding of a zero) gives 0, a
    matrix with NaN gives NaN. Does not wait for the device.
    """
    side, device = matrices.shape[-1], matrices.device.index
    shape = choose_shape(side, shared_limit(device))
    if shape is None or matrices.dtype != torch.float64:
        return None
    constants = {"TILES": shape.tiles, "WARPS": shape.warps, "ROWS": shape.rows, "IN_SHARED": int(shape.in_shared)}
    kernel = compiled("eigenvalues", tuple(constants.items()), device)
    if kernel is None:
        return None
    values = matrices.new_empty(matrices.shape[:-1])
    if len(matrices):
        if shape.in_shared:
            work, pitch = matrices.contiguous(), side
        else:  # worked on in place, and so a copy
            pitch = shape.pitch(side)
            work = pad(matrices, (0, pitch - side, 0, pitch - side)) if pitch > side else matrices.clone()
        with torch.cuda.device(device):
            kernel.launch(len(matrices), 32 * shape.warps, [work, values, side, pitch], shape.shared_bytes(side))
    return values
