"""Whether our kernels run on a device: a run must not fail for the sake of a short cut."""

from __future__ import annotations

import warnings

import torch

from unsmooth.training.fast.add_norm import Pending, add_norm
from unsmooth.training.fast.attention import attention
from unsmooth.training.fast.gelu import gelu
from unsmooth.training.fast.rotary import rotary_attention


def supports(device: torch.device, tokens: int, heads: int, dim: int, rotary: bool = False) -> bool:
    """Whether those of the ViT, or of text, compile and run there, forward and backward; a warning says why not."""
    try:
        width = heads * dim
        qkv = torch.zeros(1, tokens, 3 * width, device=device, dtype=torch.bfloat16, requires_grad=True)
        ones, zeros = torch.ones(width, device=device), torch.zeros(width, device=device)
        stream = torch.zeros(1, tokens, width, device=device)
        if rotary:
            angles = torch.zeros(tokens, dim // 2, device=device)
            pending, beta = Pending(stream, rotary_attention(qkv, angles, angles, heads)), None
        else:
            pending, beta = Pending(stream, gelu(attention(qkv, heads), zeros), zeros, ones[:1]), zeros
        out = add_norm(pending, ones, beta, 1e-6)
        (gradient,) = torch.autograd.grad(out, qkv, [torch.zeros_like(t) for t in out])
        return not bool(gradient.any())
    except Exception as error:
        warnings.warn(f"PyTorch's kernels are used, since ours do not run on {device}: {error}", stacklevel=2)
        return False
