"""Tokens to HFC and the vectors beside it on an NVIDIA GPU, in one launch instead of twenty."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from unsmooth.metrics.kernels.compile import compiled, shared_limit

THREADS = 1024
INPUTS = {torch.float64: 0, torch.float32: 1, torch.bfloat16: 2, torch.float16: 3}
Reduced = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def cuda_reduce(x: Float[Tensor, "batch token dim"], mask: Bool[Tensor, "batch token"] | None) -> Reduced | None:
    """‖x_i‖, x̄, HFC, HFC·x̄ and Σ x_i/‖x_i‖ in float64; None if the kernel cannot do it. Does not wait."""
    batch, tokens, dim = x.shape
    device, shared = x.device.index, 8 * (THREADS + 2 * dim + tokens)
    if x.dtype not in INPUTS or shared > shared_limit(device) or not x.numel():
        return None
    kernel = compiled("reduce", (("INPUT", INPUTS[x.dtype]),), device)
    if kernel is None:
        return None
    norms, cross = (x.new_empty(batch, tokens, dtype=torch.float64) for _ in range(2))
    mean, unit_sum = (x.new_empty(batch, dim, dtype=torch.float64) for _ in range(2))
    high = x.new_empty(x.shape, dtype=torch.float64)
    flags = x if mask is None else mask.contiguous()  # not read where there is no mask
    arguments = [x.contiguous(), flags, int(mask is not None), norms, mean, high, cross, unit_sum, tokens, dim]
    with torch.cuda.device(device):
        kernel.launch(batch, THREADS, arguments, shared)
    return norms, mean, high, cross, unit_sum
