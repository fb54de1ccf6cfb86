"""Triton kernels of attention with rotary positions: a whole sequence of one head is one tile.

q and k are held as two halves, (q₁, q₂) and (k₁, k₂): turning mixes column j of one half with column j of the other.
"""
# mypy: allow-untyped-defs

# Triton reads these functions as source: annotations of theirs other than `constexpr` would change what they mean.

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _turned(matrix, cos, sin, row, inside, stride, HALF: tl.constexpr):
    """Both halves of a (token, 2 · HALF) matrix, turned by each token's angles; zeros after the last token."""
    place = matrix + row[:, None] * stride + tl.arange(0, HALF)[None, :]
    first = tl.load(place, mask=inside, other=0.0)
    second = tl.load(place + HALF, mask=inside, other=0.0)
    kind = first.dtype
    first, second = first.to(tl.float32), second.to(tl.float32)
    return (first * cos - second * sin).to(kind), (second * cos + first * sin).to(kind)


@triton.jit
def _store_turned_back(matrix, first, second, cos, sin, row, inside, stride, HALF: tl.constexpr):
    place = matrix + row[:, None] * stride + tl.arange(0, HALF)[None, :]
    kind = matrix.dtype.element_ty
    tl.store(place, (first * cos + second * sin).to(kind), mask=inside)
    tl.store(place + HALF, (second * cos - first * sin).to(kind), mask=inside)


@triton.jit
def _weights(q1, q2, k1, k2, row, ends, sequence, tokens, scale):
    """The attention matrix, its rows summing to 1; keys after the sequence's last token get nothing."""
    if ends is not None:
        tokens = tl.load(ends + sequence)
    scores = (tl.dot(q1, tl.trans(k1)) + tl.dot(q2, tl.trans(k2))) * scale
    scores = tl.where((row < tokens)[None, :], scores, float("-inf"))
    weights = tl.exp2(scores - tl.max(scores, 1)[:, None])
    return weights / tl.sum(weights, 1)[:, None]


@triton.jit
def _angles(cos, sin, row, inside, HALF: tl.constexpr):
    place = row[:, None] * HALF + tl.arange(0, HALF)[None, :]
    return tl.load(cos + place, mask=inside, other=0.0), tl.load(sin + place, mask=inside, other=0.0)


@triton.jit
def forward_kernel(
    qkv, cos, sin, ends, out, tokens, scale, HEADS: tl.constexpr, HALF: tl.constexpr, TILE: tl.constexpr
):  # fmt: skip
    """One program: one head of one sequence."""
    pair, row = tl.program_id(0).to(tl.int64), tl.arange(0, TILE)
    dim: tl.constexpr = 2 * HALF
    width: tl.constexpr = HEADS * dim
    inside, column = (row < tokens)[:, None], tl.arange(0, dim)[None, :]
    q = qkv + pair // HEADS * tokens * 3 * width + pair % HEADS * dim
    c, s = _angles(cos, sin, row, inside, HALF)
    q1, q2 = _turned(q, c, s, row, inside, 3 * width, HALF)
    k1, k2 = _turned(q + width, c, s, row, inside, 3 * width, HALF)
    weights = _weights(q1, q2, k1, k2, row, ends, pair // HEADS, tokens, scale)
    value = tl.load(q + 2 * width + row[:, None] * 3 * width + column, mask=inside, other=0.0)
    mixed = tl.dot(weights.to(value.dtype), value)
    out += pair // HEADS * tokens * width + pair % HEADS * dim
    tl.store(out + row[:, None] * width + column, mixed.to(out.dtype.element_ty), mask=inside)


@triton.jit
def backward_kernel(
    qkv, cos, sin, ends, d_out, d_qkv, tokens, scale, root, HEADS: tl.constexpr, HALF: tl.constexpr, TILE: tl.constexpr
):  # fmt: skip
    """One program: dQ, dK and dV of one head of one sequence; the attention matrix is computed anew."""
    pair, row = tl.program_id(0).to(tl.int64), tl.arange(0, TILE)
    dim: tl.constexpr = 2 * HALF
    width: tl.constexpr = HEADS * dim
    inside, column = (row < tokens)[:, None], tl.arange(0, dim)[None, :]
    start = pair // HEADS * tokens * 3 * width + pair % HEADS * dim
    q, d_q = qkv + start, d_qkv + start
    c, s = _angles(cos, sin, row, inside, HALF)
    q1, q2 = _turned(q, c, s, row, inside, 3 * width, HALF)
    k1, k2 = _turned(q + width, c, s, row, inside, 3 * width, HALF)
    weights = _weights(q1, q2, k1, k2, row, ends, pair // HEADS, tokens, scale)
    packed = row[:, None] * 3 * width + column
    d_out += pair // HEADS * tokens * width + pair % HEADS * dim
    gradient = tl.load(d_out + row[:, None] * width + column, mask=inside, other=0.0)
    kind = gradient.dtype
    d_value = tl.dot(tl.trans(weights.to(kind)), gradient)
    tl.store(d_q + 2 * width + packed, d_value.to(d_qkv.dtype.element_ty), mask=inside)
    value = tl.load(q + 2 * width + packed, mask=inside, other=0.0)
    d_weights = tl.dot(gradient, tl.trans(value))
    d_scores = (weights * (d_weights - tl.sum(weights * d_weights, 1)[:, None]) * root).to(kind)
    _store_turned_back(d_q, tl.dot(d_scores, k1), tl.dot(d_scores, k2), c, s, row, inside, 3 * width, HALF)
    turned = tl.trans(d_scores)
    _store_turned_back(d_q + width, tl.dot(turned, q1), tl.dot(turned, q2), c, s, row, inside, 3 * width, HALF)
