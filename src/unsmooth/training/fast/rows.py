"""Residual addition with LayerNorm, and bias with GELU, each one kernel forward and one backward (CUDA, Triton)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import triton
from jaxtyping import Float
from torch import Tensor

from unsmooth.training.fast.row_kernels import (
    add_norm_backward_kernel,
    add_norm_kernel,
    gate_backward_kernel,
    gate_kernel,
    gelu_backward_kernel,
    gelu_kernel,
)


@dataclass(frozen=True)
class Strip:
    """How the rows are shared out; no choice of it changes what is computed but for rounding."""

    rows: int  # that a program takes at a time
    columns: int  # of GELU; LayerNorm needs them all
    warps: int
    programs: int = 0  # a multiprocessor; 0: as many as there are tiles
    stages: int = 1  # tiles that are on their way from memory at a time

    def launched(self, rows: int, device: torch.device, beside: int = 1) -> int:
        """Programs along the rows; `beside` of them lie side by side along the columns."""
        tiles = triton.cdiv(rows, self.rows)
        if not self.programs:
            return tiles
        count = torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1
        return min(tiles, max(1, count * self.programs // beside))


GATE = Strip(rows=8, columns=256, warps=4)
GELU = Strip(rows=16, columns=256, warps=8)
GELU_BACKWARD = Strip(rows=16, columns=128, warps=4, programs=4, stages=3)
ADD_NORM = Strip(rows=4, columns=0, warps=2)
ADD_NORM_BACKWARD = Strip(rows=4, columns=0, warps=2, programs=4, stages=3)
WIDE = 512  # features, from which on a program takes fewer rows with more warps: they must fit into its registers
WIDE_ADD_NORM = Strip(rows=2, columns=0, warps=4)
WIDE_ADD_NORM_BACKWARD = Strip(rows=2, columns=0, warps=4, programs=4, stages=2)


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


def launch_add_norm(
    stream: Tensor, branch: Tensor, bias: Tensor | None, keep: Tensor | None, gamma: Tensor, beta: Tensor | None,
    eps: float, out: Tensor, normed: Tensor, mean: Tensor, rstd: Tensor, strip: Strip | None = None,
) -> None:  # fmt: skip
    """Fill `out`, `normed`, `mean` and `rstd`."""
    batch, tokens, width = stream.shape
    strip = strip or (ADD_NORM if width < WIDE else WIDE_ADD_NORM)
    add_norm_kernel[(strip.launched(batch * tokens, stream.device),)](
        stream, branch, bias, keep, gamma, beta, out, normed, mean, rstd, batch * tokens, width, tokens, eps,
        ROWS=strip.rows, COLUMNS=triton.next_power_of_2(width), num_warps=strip.warps,
    )  # fmt: skip


def launch_add_norm_backward(
    d_out: Tensor, d_normed: Tensor, out: Tensor, mean: Tensor, rstd: Tensor, keep: Tensor | None, gamma: Tensor,
    d_stream: Tensor, d_branch: Tensor, sums: Tensor, strip: Strip | None = None,
) -> None:  # fmt: skip
    """Fill `d_stream`, `d_branch` and `sums` (program, 1 or 3, width), parts of the gradients of γ, bias and β."""
    batch, tokens, width = out.shape
    strip = strip or _backward_strip(width)
    add_norm_backward_kernel[(len(sums),)](
        d_out, d_normed, out, mean, rstd, keep, gamma, d_stream, d_branch, sums, batch * tokens, width, tokens,
        BIASES=sums.shape[1] == 3, ROWS=strip.rows, COLUMNS=triton.next_power_of_2(width), STAGES=strip.stages,
        num_warps=strip.warps,
    )  # fmt: skip


def _backward_strip(width: int) -> Strip:
    return ADD_NORM_BACKWARD if width < WIDE else WIDE_ADD_NORM_BACKWARD


def add_norm_programs(out: Tensor, strip: Strip | None = None) -> int:
    """How many programs share the rows in the backward pass."""
    return (strip or _backward_strip(out.shape[-1])).launched(out.shape[0] * out.shape[1], out.device)


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


@torch.library.custom_op("unsmooth::add_norm", mutates_args=())
def _add_norm(
    stream: Tensor,
    branch: Tensor,
    bias: Tensor | None,
    keep: Tensor | None,
    gamma: Tensor,
    beta: Tensor | None,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    results = _add_norm_results(stream, branch)
    launch_add_norm(stream.contiguous(), branch.contiguous(), bias, keep, gamma, beta, eps, *results)
    return results


@torch.library.custom_op("unsmooth::add_norm_backward", mutates_args=())
def _add_norm_backward(
    d_out: Tensor,
    d_normed: Tensor,
    out: Tensor,
    mean: Tensor,
    rstd: Tensor,
    keep: Tensor | None,
    gamma: Tensor,
    biases: bool,
    programs: int,
) -> tuple[Tensor, Tensor, Tensor]:
    results = _add_norm_gradients(d_normed, out, biases, programs)
    launch_add_norm_backward(d_out.contiguous(), d_normed.contiguous(), out, mean, rstd, keep, gamma, *results)
    return results


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


def _add_norm_results(stream: Tensor, branch: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Room for the sum, its LayerNorm, mean and 1/σ."""
    out, normed = (torch.empty_like(t, memory_format=torch.contiguous_format) for t in (stream, branch))
    mean, rstd = (stream.new_empty(stream.shape[:2], dtype=torch.float32) for _ in range(2))
    return out, normed, mean, rstd


def _add_norm_gradients(d_normed: Tensor, out: Tensor, biases: bool, programs: int) -> tuple[Tensor, Tensor, Tensor]:
    """Room for the gradients of stream and branch, and for partial sums of those of γ, bias and β."""
    d_stream, d_branch = (torch.empty_like(t, memory_format=torch.contiguous_format) for t in (out, d_normed))
    return d_stream, d_branch, out.new_empty(programs, 3 if biases else 1, out.shape[-1], dtype=torch.float32)


_add_norm.register_fake(_add_norm_results)


@_add_norm_backward.register_fake
def _(d_out: Tensor, d_normed: Tensor, out: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    *_, biases, programs = rest
    return _add_norm_gradients(d_normed, out, biases, programs)


def _keep_gelu(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _differentiate_gelu(ctx: Any, d_out: Tensor) -> tuple[Tensor, Tensor]:
    hidden, bias = ctx.saved_tensors
    d_hidden, sums = _gelu_backward(hidden, bias, d_out, gelu_programs(hidden))
    return d_hidden, sums.sum(0).to(bias.dtype)


def _keep_add_norm(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    _, _, bias, keep, gamma, beta, _ = inputs
    out, _, mean, rstd = output
    ctx.given = (bias is not None, beta is not None)
    ctx.save_for_backward(out, mean, rstd, keep, gamma)


def _differentiate_add_norm(ctx: Any, d_out: Tensor, d_normed: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    out, mean, rstd, keep, gamma = ctx.saved_tensors
    programs = add_norm_programs(out)
    d_stream, d_branch, sums = _add_norm_backward(
        d_out, d_normed, out, mean, rstd, keep, gamma, any(ctx.given), programs
    )
    d_gamma, *rest = sums.sum(0).to(gamma.dtype).unbind(0)
    d_bias, d_beta = (part if given else None for part, given in zip(rest or (None, None), ctx.given, strict=True))
    return d_stream, d_branch, d_bias, None, d_gamma, d_beta, None


def _keep_gate(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _differentiate_gate(ctx: Any, d_out: Tensor) -> Tensor:
    return _gate_backward(*ctx.saved_tensors, d_out)


_gate.register_autograd(_differentiate_gate, setup_context=_keep_gate)
_gelu.register_autograd(_differentiate_gelu, setup_context=_keep_gelu)
_add_norm.register_autograd(_differentiate_add_norm, setup_context=_keep_add_norm)


class Pending(NamedTuple):
    """A residual sum that is not done yet: stream + keep · (branch + bias), one `keep` for each image.

    None stands for a bias of 0 and for keeping all.
    """

    stream: Float[Tensor, "batch token dim"]
    branch: Float[Tensor, "batch token dim"]
    bias: Float[Tensor, " dim"] | None = None
    keep: Float[Tensor, " batch"] | None = None

    def add(self) -> Float[Tensor, "batch token dim"]:
        """Do it."""
        branch = self.branch if self.bias is None else self.branch + self.bias
        return self.stream + (branch if self.keep is None else self.keep[:, None, None] * branch)


def add_norm(
    pending: Pending, gamma: Float[Tensor, " dim"], beta: Float[Tensor, " dim"] | None, eps: float
) -> tuple[Float[Tensor, "batch token dim"], Float[Tensor, "batch token dim"]]:
    """The residual sum, and its LayerNorm in the branch's precision."""
    out, normed, _, _ = _add_norm(*pending, gamma, beta, eps)
    return out, normed


def gelu(hidden: Float[Tensor, "*token width"], bias: Float[Tensor, " width"]) -> Float[Tensor, "*token width"]:
    """gelu(hidden + bias), the exact one (by the normal distribution, not by tanh)."""
    out: Tensor = _gelu(hidden, bias)
    return out


def gate(hidden: Float[Tensor, "*token double"]) -> Float[Tensor, "*token width"]:
    """gelu(a) · b of features (a, b) side by side (GEGLU)."""
    out: Tensor = _gate(hidden)
    return out
