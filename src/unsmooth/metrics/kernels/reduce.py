"""Tokens to the vectors that the metrics need, on an NVIDIA GPU: two launches for any number of points."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from unsmooth.metrics.kernels.compile import compiled

THREADS, ROWS = 256, 32  # as in reduce.cu
INPUTS = {torch.float32: 1, torch.bfloat16: 2, torch.float16: 3}
Reduced = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def cuda_reduce(x: Float[Tensor, "batch token dim"], mask: Bool[Tensor, "batch token"] | None) -> Reduced | None:
    """‖x_i‖, x̄, ‖HFC_i‖², HFC·x̄ and Σ x_i/‖x_i‖ in float64; None if the kernel cannot do it. Does not wait."""
    batch, tokens, dim = x.shape
    if x.dtype not in INPUTS or not x.numel():
        return None
    device, x = x.device.index, x.contiguous()
    size = x.element_size()
    vec = next(v for v in (16 // size, 8 // size, 4 // size, 1) if dim % v == 0 and x.data_ptr() % (v * size) == 0)
    constants = (("INPUT", INPUTS[x.dtype]), ("VEC", vec))
    sums, centre = (compiled("reduce", constants, device, name) for name in ("sums", "centre"))
    if sums is None or centre is None:
        return None
    chunks = -(-tokens // ROWS)
    norms, squares, cross = x.new_empty(3, batch, tokens, dtype=torch.float64)
    partial = x.new_empty(batch, chunks, 2, dim, dtype=torch.float64)
    given = [x, x if mask is None else mask.contiguous(), int(mask is not None)]  # no mask is not read
    shape = [chunks, tokens, dim]
    with torch.cuda.device(device):
        sums.launch(batch * chunks, THREADS, [*given, norms, partial, *shape], 0)
        total, unit_sum = partial.sum(1).unbind(1)
        mean = total / (tokens if mask is None else mask.sum(-1, keepdim=True))
        centre.launch(batch * chunks, THREADS, [*given, mean, squares, cross, *shape], 0)
    return norms, mean, squares, cross, unit_sum
