"""Whether our kernels run on a device: a run must not fail for the sake of a short cut."""

from __future__ import annotations

import warnings

import torch

from unsmooth.training.fast.attention import attention
from unsmooth.training.fast.rows import Pending, add_norm, gelu


def supports(device: torch.device, tokens: int, heads: int, dim: int) -> bool:
    """Whether all of them compile and run there, forward and backward; a warning says why not."""
    try:
        width = heads * dim
        qkv = torch.zeros(1, tokens, 3 * width, device=device, dtype=torch.bfloat16, requires_grad=True)
        ones, zeros = torch.ones(width, device=device), torch.zeros(width, device=device)
        mixed = gelu(attention(qkv, heads), zeros)
        pending = Pending(torch.zeros(mixed.shape, device=device), mixed, zeros, ones[:1])
        stream, normed = add_norm(pending, ones, zeros, 1e-6)
        (gradient,) = torch.autograd.grad((stream, normed), qkv, (torch.zeros_like(stream), torch.zeros_like(normed)))
        return not bool(gradient.any())
    except Exception as error:
        warnings.warn(f"PyTorch's kernels are used, since ours do not run on {device}: {error}", stacklevel=2)
        return False
