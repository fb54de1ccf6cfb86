"""Triton kernels of a residual sum with LayerNorm; backward, they add up the columns on the way.

The gradient of a bias, γ or β is a sum over all tokens. Left to the compiler, each such sum reads its matrix from
memory once more; here every program keeps the sums of the rows it visits, and only these are added up afterwards,
always in the same order.
"""
# mypy: allow-untyped-defs

# Triton reads these functions as source: annotations of theirs other than `constexpr` would change what they mean.

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def add_norm_kernel(
    stream, branch, bias, keep, gamma, beta, out, normed, mean, rstd, rows, width, tokens, eps,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """out = stream + keep · (branch + bias), one `keep` per image; normed = LayerNorm(out).

    Without bias, `keep` or β their code is not there.
    """
    row, column = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    inside = (row[:, None] < rows) & (column[None, :] < width)
    place = row[:, None] * width + column[None, :]
    added = tl.load(branch + place, mask=inside, other=0.0).to(tl.float32)
    if bias is not None:
        added += tl.load(bias + column, mask=column < width, other=0.0).to(tl.float32)[None, :]
    if keep is not None:
        added *= tl.load(keep + row // tokens, mask=row < rows, other=0.0).to(tl.float32)[:, None]
    x = tl.load(stream + place, mask=inside, other=0.0).to(tl.float32) + added
    x = tl.where(column[None, :] < width, x, 0.0)
    tl.store(out + place, x.to(out.dtype.element_ty), mask=inside)
    centre = tl.sum(x, 1) / width
    deviation = tl.where(column[None, :] < width, x - centre[:, None], 0.0)
    scale = tl.rsqrt(tl.sum(deviation * deviation, 1) / width + eps)
    tl.store(mean + row, centre, mask=row < rows)
    tl.store(rstd + row, scale, mask=row < rows)
    g = tl.load(gamma + column, mask=column < width, other=0.0).to(tl.float32)[None, :]
    scaled = deviation * scale[:, None] * g
    if beta is not None:
        scaled += tl.load(beta + column, mask=column < width, other=0.0).to(tl.float32)[None, :]
    tl.store(normed + place, scaled.to(normed.dtype.element_ty), mask=inside)


@triton.jit
def add_norm_backward_kernel(
    d_out, d_normed, out, mean, rstd, keep, gamma, d_stream, d_branch, sums, rows, width, tokens,
    BIASES: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Gradients of the stream and of the branch; `sums` (program, 1 or 3, width) are those of γ, and of bias and β."""
    first, programs, column = tl.program_id(0), tl.num_programs(0), tl.arange(0, COLUMNS)
    g = tl.load(gamma + column, mask=column < width, other=0.0).to(tl.float32)[None, :]
    d_bias = tl.zeros([ROWS, COLUMNS], tl.float32)
    d_gamma = tl.zeros([ROWS, COLUMNS], tl.float32)
    d_beta = tl.zeros([ROWS, COLUMNS], tl.float32)
    for tile in tl.range(first, tl.cdiv(rows, ROWS), programs, num_stages=STAGES):
        row = tile * ROWS + tl.arange(0, ROWS).to(tl.int64)
        inside = (row[:, None] < rows) & (column[None, :] < width)
        place = row[:, None] * width + column[None, :]
        centre = tl.load(mean + row, mask=row < rows, other=0.0)
        scale = tl.load(rstd + row, mask=row < rows, other=0.0)
        x = tl.load(out + place, mask=inside, other=0.0).to(tl.float32)
        x = tl.where(inside, (x - centre[:, None]) * scale[:, None], 0.0)
        gradient = tl.load(d_normed + place, mask=inside, other=0.0).to(tl.float32)
        d_gamma += gradient * x
        if BIASES:
            d_beta += gradient
        gradient *= g
        along, level = tl.sum(gradient * x, 1) / width, tl.sum(gradient, 1) / width
        gradient = scale[:, None] * (gradient - level[:, None] - x * along[:, None])
        gradient += tl.load(d_out + place, mask=inside, other=0.0).to(tl.float32)
        tl.store(d_stream + place, gradient.to(d_stream.dtype.element_ty), mask=inside)
        if keep is not None:
            gradient *= tl.load(keep + row // tokens, mask=row < rows, other=0.0).to(tl.float32)[:, None]
        tl.store(d_branch + place, gradient.to(d_branch.dtype.element_ty), mask=inside)
        if BIASES:
            d_bias += tl.where(inside, gradient, 0.0)
    sums += first * (3 if BIASES else 1) * width + column
    tl.store(sums, tl.sum(d_gamma, 0), mask=column < width)
    if BIASES:
        tl.store(sums + width, tl.sum(d_bias, 0), mask=column < width)
        tl.store(sums + 2 * width, tl.sum(d_beta, 0), mask=column < width)
