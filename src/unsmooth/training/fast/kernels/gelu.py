"""Triton kernels of GELU with its bias and of GEGLU; backward, they add up columns as those of `add_norm` do."""
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
