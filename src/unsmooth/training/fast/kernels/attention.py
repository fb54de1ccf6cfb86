"""Triton kernels of `attention`: one program per tile of one head; a rest of the sequence gets a small tile."""
# mypy: allow-untyped-defs

# Triton reads these functions as source: annotations of theirs other than `constexpr` would change what they mean.

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _load(matrix, start, tokens, stride, SIZE: tl.constexpr, DIM: tl.constexpr):
    """Rows start … start + SIZE of a (tokens, DIM) matrix; zeros after the last token."""
    row, column = start + tl.arange(0, SIZE), tl.arange(0, DIM)
    return tl.load(matrix + row[:, None] * stride + column[None, :], mask=row[:, None] < tokens, other=0.0)


@triton.jit
def _store(matrix, values, start, tokens, stride, SIZE: tl.constexpr, DIM: tl.constexpr):
    row, column = start + tl.arange(0, SIZE), tl.arange(0, DIM)
    kept = values.to(matrix.dtype.element_ty)
    tl.store(matrix + row[:, None] * stride + column[None, :], kept, mask=row[:, None] < tokens)


@triton.jit
def _place(matrix, pair, tokens, stride, HEADS: tl.constexpr, DIM: tl.constexpr):
    """Where the features of one image and head begin in a (image, token, stride) matrix."""
    return matrix + pair // HEADS * tokens * stride + pair % HEADS * DIM


@triton.jit
def _attend(
    q, k, v, start, tokens, stride, scale, top, total, mixed, SIZE: tl.constexpr, DIM: tl.constexpr, REST: tl.constexpr
):
    """One tile of keys: the running maximum, the sum of exponentials and the mixed values (online softmax)."""
    scores = tl.dot(q, tl.trans(_load(k, start, tokens, stride, SIZE, DIM))) * scale
    if REST:  # keys after the last token count for nothing
        scores = tl.where((start + tl.arange(0, SIZE) < tokens)[None, :], scores, float("-inf"))
    higher = tl.maximum(top, tl.max(scores, 1))
    weights = tl.exp2(scores - higher[:, None])
    shrink = tl.exp2(top - higher)
    values = _load(v, start, tokens, stride, SIZE, DIM)
    mixed = tl.dot(weights.to(values.dtype), values, mixed * shrink[:, None])
    return higher, total * shrink + tl.sum(weights, 1), mixed


@triton.jit
def _forward_rows(
    q, k, v, out, lse, start, tokens, stride, out_stride, scale,
    SIZE: tl.constexpr, DIM: tl.constexpr, VISIT: tl.constexpr, FULL: tl.constexpr, REST: tl.constexpr,
):  # fmt: skip
    query = _load(q, start, tokens, stride, SIZE, DIM)
    top = tl.full([SIZE], float("-inf"), tl.float32)
    total = tl.zeros([SIZE], tl.float32)
    mixed = tl.zeros([SIZE, DIM], tl.float32)
    for i in tl.range(FULL):
        top, total, mixed = _attend(query, k, v, i * VISIT, tokens, stride, scale, top, total, mixed, VISIT, DIM, False)
    if REST > 0:
        top, total, mixed = _attend(
            query, k, v, FULL * VISIT, tokens, stride, scale, top, total, mixed, REST, DIM, True
        )
    _store(out, mixed / total[:, None], start, tokens, out_stride, SIZE, DIM)
    row = start + tl.arange(0, SIZE)
    tl.store(lse + row, top + tl.log2(total), mask=row < tokens)


@triton.jit
def forward_kernel(
    qkv, out, lse, tokens, scale, HEADS: tl.constexpr, DIM: tl.constexpr,
    OWN: tl.constexpr, OWN_FULL: tl.constexpr, OWN_REST: tl.constexpr,
    VISIT: tl.constexpr, FULL: tl.constexpr, REST: tl.constexpr,
):  # fmt: skip
    """One program: a tile of queries of one head."""
    pair, tile = tl.program_id(0).to(tl.int64), tl.program_id(1)
    width: tl.constexpr = HEADS * DIM
    q = _place(qkv, pair, tokens, 3 * width, HEADS, DIM)
    out = _place(out, pair, tokens, width, HEADS, DIM)
    lse += pair * tokens
    if tile < OWN_FULL:
        _forward_rows(q, q + width, q + 2 * width, out, lse, tile * OWN, tokens, 3 * width, width, scale,
                      OWN, DIM, VISIT, FULL, REST)  # fmt: skip
    if OWN_REST > 0:  # noqa: SIM102 - known when compiling: a tile of 0 rows cannot even be compiled
        if tile == OWN_FULL:
            _forward_rows(q, q + width, q + 2 * width, out, lse, OWN_FULL * OWN, tokens, 3 * width, width, scale,
                          OWN_REST, DIM, VISIT, FULL, REST)  # fmt: skip


@triton.jit
def _places(qkv, d_qkv, d_out, lse, product, pair, tokens, HEADS: tl.constexpr, DIM: tl.constexpr):
    """Where what the backward pass reads and writes of one image and head begins: q, dq, dO, the sums, Σ dO · O."""
    width: tl.constexpr = HEADS * DIM
    q = _place(qkv, pair, tokens, 3 * width, HEADS, DIM)
    d_q = _place(d_qkv, pair, tokens, 3 * width, HEADS, DIM)
    d_out = _place(d_out, pair, tokens, width, HEADS, DIM)
    return q, d_q, d_out, lse + pair * tokens, _place(product, pair, tokens, HEADS, HEADS, 1)


@triton.jit
def _facts(d_out, lse, product, start, tokens, out_stride, SIZE: tl.constexpr, DIM: tl.constexpr, HEADS: tl.constexpr):
    """dO, the softmax's logarithmic sum (∞ after the last token, so that weights are 0 there) and Σ dO · O, by row."""
    row = start + tl.arange(0, SIZE)
    sums = tl.load(lse + row, mask=row < tokens, other=float("inf"))
    products = tl.load(product + row * HEADS, mask=row < tokens, other=0.0)
    return _load(d_out, start, tokens, out_stride, SIZE, DIM), sums, products


@triton.jit
def _visit_queries(
    key, value, q, d_out, lse, product, start, tokens, stride, out_stride, scale, d_key, d_value,
    SIZE: tl.constexpr, DIM: tl.constexpr, HEADS: tl.constexpr,
):  # fmt: skip
    """What one tile of queries adds to dK and dV."""
    query = _load(q, start, tokens, stride, SIZE, DIM)
    gradient, sums, products = _facts(d_out, lse, product, start, tokens, out_stride, SIZE, DIM, HEADS)
    weights = tl.exp2(tl.dot(key, tl.trans(query)) * scale - sums[None, :])  # (key, query)
    d_value = tl.dot(weights.to(gradient.dtype), gradient, d_value)
    d_scores = weights * (tl.dot(value, tl.trans(gradient)) - products[None, :])
    return tl.dot(d_scores.to(query.dtype), query, d_key), d_value


@triton.jit
def _backward_keys(
    q, k, v, d_out, lse, product, d_k, d_v, start, tokens, stride, out_stride, scale, root,
    SIZE: tl.constexpr, DIM: tl.constexpr, HEADS: tl.constexpr,
    VISIT: tl.constexpr, FULL: tl.constexpr, REST: tl.constexpr,
):  # fmt: skip
    key = _load(k, start, tokens, stride, SIZE, DIM)
    value = _load(v, start, tokens, stride, SIZE, DIM)
    d_key = tl.zeros([SIZE, DIM], tl.float32)
    d_value = tl.zeros([SIZE, DIM], tl.float32)
    for i in tl.range(FULL):
        d_key, d_value = _visit_queries(key, value, q, d_out, lse, product, i * VISIT, tokens, stride, out_stride,
                                        scale, d_key, d_value, VISIT, DIM, HEADS)  # fmt: skip
    if REST > 0:
        d_key, d_value = _visit_queries(key, value, q, d_out, lse, product, FULL * VISIT, tokens, stride, out_stride,
                                        scale, d_key, d_value, REST, DIM, HEADS)  # fmt: skip
    _store(d_k, d_key * root, start, tokens, stride, SIZE, DIM)
    _store(d_v, d_value, start, tokens, stride, SIZE, DIM)


@triton.jit
def backward_keys_kernel(
    qkv, d_out, lse, product, d_qkv, tokens, scale, root, HEADS: tl.constexpr, DIM: tl.constexpr,
    OWN: tl.constexpr, OWN_FULL: tl.constexpr, OWN_REST: tl.constexpr,
    VISIT: tl.constexpr, FULL: tl.constexpr, REST: tl.constexpr,
):  # fmt: skip
    """One program: dK and dV of a tile of keys of one head."""
    pair, tile = tl.program_id(0).to(tl.int64), tl.program_id(1)
    width: tl.constexpr = HEADS * DIM
    q, d_q, d_out, lse, product = _places(qkv, d_qkv, d_out, lse, product, pair, tokens, HEADS, DIM)
    d_k = d_q + width
    if tile < OWN_FULL:
        _backward_keys(q, q + width, q + 2 * width, d_out, lse, product, d_k, d_k + width, tile * OWN, tokens,
                       3 * width, width, scale, root, OWN, DIM, HEADS, VISIT, FULL, REST)  # fmt: skip
    if OWN_REST > 0:  # noqa: SIM102 - known when compiling: a tile of 0 rows cannot even be compiled
        if tile == OWN_FULL:
            _backward_keys(q, q + width, q + 2 * width, d_out, lse, product, d_k, d_k + width, tile * OWN, tokens,
                           3 * width, width, scale, root, OWN_REST, DIM, HEADS, VISIT, FULL, REST)  # fmt: skip


@triton.jit
def _visit_keys(
    query, gradient, sums, products, k, v, start, tokens, stride, scale, d_query,
    SIZE: tl.constexpr, DIM: tl.constexpr, REST: tl.constexpr,
):  # fmt: skip
    """What one tile of keys adds to dQ."""
    key = _load(k, start, tokens, stride, SIZE, DIM)
    value = _load(v, start, tokens, stride, SIZE, DIM)
    scores = tl.dot(query, tl.trans(key)) * scale
    if REST:  # keys after the last token are zeros, and their score is too: far above one whose own scores are all low
        scores = tl.where((start + tl.arange(0, SIZE) < tokens)[None, :], scores, float("-inf"))
    weights = tl.exp2(scores - sums[:, None])
    d_scores = weights * (tl.dot(gradient, tl.trans(value)) - products[:, None])
    return tl.dot(d_scores.to(key.dtype), key, d_query)


@triton.jit
def _backward_queries(
    q, k, v, d_out, lse, product, d_q, start, tokens, stride, out_stride, scale, root,
    SIZE: tl.constexpr, DIM: tl.constexpr, HEADS: tl.constexpr,
    VISIT: tl.constexpr, FULL: tl.constexpr, REST: tl.constexpr,
):  # fmt: skip
    query = _load(q, start, tokens, stride, SIZE, DIM)
    gradient, sums, products = _facts(d_out, lse, product, start, tokens, out_stride, SIZE, DIM, HEADS)
    d_query = tl.zeros([SIZE, DIM], tl.float32)
    for i in tl.range(FULL):
        d_query = _visit_keys(query, gradient, sums, products, k, v, i * VISIT, tokens, stride, scale, d_query,
                              VISIT, DIM, False)  # fmt: skip
    if REST > 0:
        d_query = _visit_keys(query, gradient, sums, products, k, v, FULL * VISIT, tokens, stride, scale, d_query,
                              REST, DIM, True)  # fmt: skip
    _store(d_q, d_query * root, start, tokens, stride, SIZE, DIM)


@triton.jit
def backward_queries_kernel(
    qkv, d_out, lse, product, d_qkv, tokens, scale, root, HEADS: tl.constexpr, DIM: tl.constexpr,
    OWN: tl.constexpr, OWN_FULL: tl.constexpr, OWN_REST: tl.constexpr,
    VISIT: tl.constexpr, FULL: tl.constexpr, REST: tl.constexpr,
):  # fmt: skip
    """One program: dQ of a tile of queries of one head."""
    pair, tile = tl.program_id(0).to(tl.int64), tl.program_id(1)
    width: tl.constexpr = HEADS * DIM
    q, d_q, d_out, lse, product = _places(qkv, d_qkv, d_out, lse, product, pair, tokens, HEADS, DIM)
    if tile < OWN_FULL:
        _backward_queries(q, q + width, q + 2 * width, d_out, lse, product, d_q, tile * OWN, tokens,
                          3 * width, width, scale, root, OWN, DIM, HEADS, VISIT, FULL, REST)  # fmt: skip
    if OWN_REST > 0:  # noqa: SIM102 - known when compiling: a tile of 0 rows cannot even be compiled
        if tile == OWN_FULL:
            _backward_queries(q, q + width, q + 2 * width, d_out, lse, product, d_q, tile * OWN, tokens,
                              3 * width, width, scale, root, OWN_REST, DIM, HEADS, VISIT, FULL, REST)  # fmt: skip
