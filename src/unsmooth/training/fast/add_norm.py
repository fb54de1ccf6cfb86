"""Residual addition with LayerNorm, one kernel forward and one backward (CUDA, Triton)."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
from jaxtyping import Float
from torch import Tensor

from unsmooth.training.fast.kernels.add_norm import add_norm_backward_kernel, add_norm_kernel
from unsmooth.training.fast.strip import Strip

ADD_NORM = Strip(rows=4, columns=0, warps=2)
ADD_NORM_BACKWARD = Strip(rows=4, columns=0, warps=2, programs=4, stages=3)
WIDE = 512  # features, from which on a program takes fewer rows with more warps: they must fit into its registers
WIDE_ADD_NORM = Strip(rows=2, columns=0, warps=4)
WIDE_ADD_NORM_BACKWARD = Strip(rows=2, columns=0, warps=4, programs=4, stages=2)


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


# Plain types and a number of programs as arguments below, for the reasons that stand in `gelu`.


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
