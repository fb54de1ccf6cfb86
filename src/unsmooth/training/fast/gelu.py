"""Bias with GELU, and GEGLU, each one kernel forward and one backward (CUDA, Triton)."""

from __future__ import annotations

from typing import Any

import torch
import triton
from jaxtyping import Float
from torch import Tensor

from unsmooth.training.fast.kernels.gelu import gate_backward_kernel, gate_kernel, gelu_backward_kernel, gelu_kernel
from unsmooth.training.fast.strip import Strip

GATE = Strip(rows=8, columns=256, warps=4)
GELU = Strip(rows=16, columns=256, warps=8)
GELU_BACKWARD = Strip(rows=16, columns=128, warps=4, programs=4, stages=3)


def launch_gelu(hidden: Tensor, bias: Tensor, out: Tensor, strip: Strip = GELU) -> None:
    """Fill `out`."""
    rows, width = hidden.numel() // hidden.shape[-1], hidden.shape[-1]
    grid = (triton.cdiv(width, strip.columns), strip.launched(rows, hidden.device))
    gelu_kernel[grid](hidden, bias, out, rows, width, ROWS=strip.rows, COLUMNS=strip.columns, num_warps=strip.warps)


def launch_gelu_backward(
    hidden: Tensor, bias: Tensor, d_out: Tensor, d_hidden: Tensor, sums: Tensor, strip: Strip = GELU_BACKWARD
) -> None:
    """Fill `d_hidden` and `sums` (program, width), the parts of the bias's gradient."""
    rows, width = hidden.numel() // hidden.shape[-1], hidden.shape[-1]
    gelu_backward_kernel[(triton.cdiv(width, strip.columns), len(sums))](
        hidden, bias, d_out, d_hidden, sums, rows, width,
        ROWS=strip.rows, COLUMNS=strip.columns, STAGES=strip.stages, num_warps=strip.warps,
    )  # fmt: skip


def gelu_programs(hidden: Tensor, strip: Strip = GELU_BACKWARD) -> int:
    """How many programs share the rows in the backward pass."""
    rows, width = hidden.numel() // hidden.shape[-1], hidden.shape[-1]
    return strip.launched(rows, hidden.device, beside=triton.cdiv(width, strip.columns))


# Plain types below: torch reads each op's schema off them. How many partial sums a backward op returns is one of its
# arguments, since the compiler's cache on disk knows an op by its arguments: with another strip it must not be found.


@torch.library.custom_op("unsmooth::gelu", mutates_args=())
def _gelu(hidden: Tensor, bias: Tensor) -> Tensor:
    hidden = hidden.contiguous()
    out = torch.empty_like(hidden)
    launch_gelu(hidden, bias, out)
    return out


@torch.library.custom_op("unsmooth::gelu_backward", mutates_args=())
def _gelu_backward(hidden: Tensor, bias: Tensor, d_out: Tensor, programs: int) -> tuple[Tensor, Tensor]:
    hidden = hidden.contiguous()
    d_hidden, sums = torch.empty_like(hidden), hidden.new_empty(programs, hidden.shape[-1], dtype=torch.float32)
    launch_gelu_backward(hidden, bias, d_out.contiguous(), d_hidden, sums)
    return d_hidden, sums


@torch.library.custom_op("unsmooth::gate", mutates_args=())
def _gate(hidden: Tensor) -> Tensor:
    hidden = hidden.contiguous()
    width = hidden.shape[-1] // 2
    out, rows = hidden.new_empty(*hidden.shape[:-1], width), hidden.numel() // (2 * width)
    grid = (triton.cdiv(rows, GATE.rows), triton.cdiv(width, GATE.columns))  # only the first may be long
    gate_kernel[grid](hidden, out, rows, width, ROWS=GATE.rows, COLUMNS=GATE.columns, num_warps=GATE.warps)
    return out


@torch.library.custom_op("unsmooth::gate_backward", mutates_args=())
def _gate_backward(hidden: Tensor, d_out: Tensor) -> Tensor:
    hidden, d_out = hidden.contiguous(), d_out.contiguous()
    width, d_hidden = d_out.shape[-1], torch.empty_like(hidden)
    rows = d_out.numel() // width
    grid = (triton.cdiv(rows, GATE.rows), triton.cdiv(width, GATE.columns))  # only the first may be long
    gate_backward_kernel[grid](
        hidden, d_out, d_hidden, rows, width, ROWS=GATE.rows, COLUMNS=GATE.columns, num_warps=GATE.warps
    )
    return d_hidden


@_gelu.register_fake
def _(hidden: Tensor, bias: Tensor) -> Tensor:
    return torch.empty_like(hidden, memory_format=torch.contiguous_format)


@_gelu_backward.register_fake
def _(hidden: Tensor, bias: Tensor, d_out: Tensor, programs: int) -> tuple[Tensor, Tensor]:
    sums = hidden.new_empty(programs, hidden.shape[-1], dtype=torch.float32)
    return torch.empty_like(hidden, memory_format=torch.contiguous_format), sums


@_gate.register_fake
def _(hidden: Tensor) -> Tensor:
    return hidden.new_empty(*hidden.shape[:-1], hidden.shape[-1] // 2)


@_gate_backward.register_fake
def _(hidden: Tensor, d_out: Tensor) -> Tensor:
    return torch.empty_like(hidden, memory_format=torch.contiguous_format)


def _keep_inputs(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _differentiate_gelu(ctx: Any, d_out: Tensor) -> tuple[Tensor, Tensor]:
    hidden, bias = ctx.saved_tensors
    d_hidden, sums = _gelu_backward(hidden, bias, d_out, gelu_programs(hidden))
    return d_hidden, sums.sum(0).to(bias.dtype)


def _differentiate_gate(ctx: Any, d_out: Tensor) -> Tensor:
    return _gate_backward(*ctx.saved_tensors, d_out)


_gate.register_autograd(_differentiate_gate, setup_context=_keep_inputs)
_gelu.register_autograd(_differentiate_gelu, setup_context=_keep_inputs)


def gelu(hidden: Float[Tensor, "*token width"], bias: Float[Tensor, " width"]) -> Float[Tensor, "*token width"]:
    """gelu(hidden + bias), the exact one (by the normal distribution, not by tanh)."""
    out: Tensor = _gelu(hidden, bias)
    return out


def gate(hidden: Float[Tensor, "*token double"]) -> Float[Tensor, "*token width"]:
    """gelu(a) · b of features (a, b) side by side (GEGLU)."""
    out: Tensor = _gate(hidden)
    return out
