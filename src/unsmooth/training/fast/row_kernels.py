"""Triton kernels that go over tokens row by row; backward, they add up the columns on the way.

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
def _normal(x):
    """Φ(x) and φ(x) of the normal distribution, to 7.5e-8 (Abramowitz & Stegun 26.2.17).

    One exponential serves both; erf would need its own, and more arithmetic than reading the matrix takes.
    """
    density = 0.3989422804014327 * tl.exp2(x * x * -0.7213475204444817)  # log₂(e)/2
    t = 1.0 / (1.0 + 0.2316419 * tl.abs(x))
    polynomial = 0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429)))
    tail = density * t * polynomial
    return tl.where(x >= 0, 1.0 - tail, tail), density


@triton.jit
def gelu_kernel(hidden, bias, out, rows, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """out = gelu(hidden + bias)."""
    row = tl.program_id(1).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (row[:, None] < rows) & (column[None, :] < width)
    place = row[:, None] * width + column[None, :]
    x = tl.load(hidden + place, mask=inside, other=0.0).to(tl.float32)
    x += tl.load(bias + column, mask=column < width, other=0.0).to(tl.float32)[None, :]
    tl.store(out + place, (x * _normal(x)[0]).to(out.dtype.element_ty), mask=inside)


@triton.jit
def gelu_backward_kernel(
    hidden, bias, d_out, d_hidden, sums, rows, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STAGES: tl.constexpr
):
    """d_hidden, and its column sums over the rows of this program."""
    first, programs = tl.program_id(1), tl.num_programs(1)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    b = tl.load(bias + column, mask=column < width, other=0.0).to(tl.float32)[None, :]
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for tile in tl.range(first, tl.cdiv(rows, ROWS), programs, num_stages=STAGES):
        row = tile * ROWS + tl.arange(0, ROWS).to(tl.int64)
        inside = (row[:, None] < rows) & (column[None, :] < width)
        place = row[:, None] * width + column[None, :]
        x = tl.load(hidden + place, mask=inside, other=0.0).to(tl.float32) + b
        gradient = tl.load(d_out + place, mask=inside, other=0.0).to(tl.float32)
        cumulative, density = _normal(x)
        gradient *= cumulative + x * density
        tl.store(d_hidden + place, gradient.to(d_hidden.dtype.element_ty), mask=inside)
        total += gradient
    tl.store(sums + first * width + column, tl.sum(total, 0), mask=column < width)


@triton.jit
def gate_kernel(hidden, out, rows, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """out = gelu(a) · b of rows (a, b) of 2 · width features."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (row[:, None] < rows) & (column[None, :] < width)
    place = hidden + row[:, None] * 2 * width + column[None, :]
    a = tl.load(place, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(place + width, mask=inside, other=0.0).to(tl.float32)
    # rounded as the two steps would be
    gelu = (a * _normal(a)[0]).to(out.dtype.element_ty).to(tl.float32)
    tl.store(out + row[:, None] * width + column[None, :], (gelu * b).to(out.dtype.element_ty), mask=inside)


@triton.jit
def gate_backward_kernel(hidden, d_out, d_hidden, rows, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Gradients of both halves."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (row[:, None] < rows) & (column[None, :] < width)
    place = row[:, None] * 2 * width + column[None, :]
    a = tl.load(hidden + place, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(hidden + width + place, mask=inside, other=0.0).to(tl.float32)
    gradient = tl.load(d_out + row[:, None] * width + column[None, :], mask=inside, other=0.0).to(tl.float32)
    cumulative, density = _normal(a)
    kind = d_hidden.dtype.element_ty
    tl.store(d_hidden + place, (gradient * b * (cumulative + a * density)).to(kind), mask=inside)
    tl.store(d_hidden + width + place, (gradient * a * cumulative).to(kind), mask=inside)


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
