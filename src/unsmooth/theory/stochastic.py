"""Attention as a row-stochastic matrix: the checks, and the space left when `1` is divided out."""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from unsmooth.errors import FeatureError, WeightsError
from unsmooth.metrics.tolerance import tolerance


def check_row_stochastic(
    a: Float[Tensor, "*batch head token token"], mask: Bool[Tensor, "*batch token"] | None = None
) -> None:
    """Raise unless `A·1 = 1`, the only property that sections 3 and 4 of the theory need.

    With a mask, for the kept tokens among themselves: a kept query must not look at what is left out.
    """
    n = a.shape[-1]
    if a.ndim < 2 or a.shape[-2] != n:
        raise WeightsError(f"attention must be (..., tokens, tokens), got shape {tuple(a.shape)}")
    if n < 2:
        raise FeatureError("one token only: there is no high-frequency part; give at least two tokens")
    check_rows_sum(a) if mask is None else check_rows_sum(a, mask[..., None, :, None], mask[..., None, None, :])


def check_rows_sum(
    a: Float[Tensor, "*batch head query token"],
    queries: Bool[Tensor, "*batch 1 query 1"] | None = None,
    keys: Bool[Tensor, "*batch 1 1 token"] | None = None,
) -> None:
    """The same for some rows of A: every kept query's attention to the kept keys sums to 1."""
    total = (a if keys is None else torch.where(keys, a, 0)).sum(-1, dtype=torch.float64)
    total = total if queries is None else torch.where(queries[..., 0], total, 1)
    error = float((total - 1).abs().max())  # NaN where a row has one: one wait for the device tells both
    if not math.isfinite(error):
        raise WeightsError("attention holds NaN or infinity; expected softmax rows")
    # a mixed-precision softmax is only as stochastic as its own dtype; 1e-6 covers reciprocal-based kernels
    allowed = max(tolerance(a.dtype, a.shape[-1]), 1e-6)
    if error > allowed:
        raise WeightsError(
            f"attention rows must sum to 1 (A·1 = 1): a row is off by {error:.2e}, allowed {allowed:.1e}; "
            "give the softmax output with the query on the second-to-last axis, without dropout"
        )


def widened(
    a: Float[Tensor, "*batch head token token"], mask: Bool[Tensor, "*batch token"] | None = None
) -> Float[Tensor, "*batch head token token"]:
    """A in float32 at least. A half-precision softmax sums to one in its own dtype only: its rows are divided again.

    >>> widened(torch.full((1, 3, 3), 1 / 3, dtype=torch.bfloat16)).sum(-1)
    tensor([[1., 1., 1.]])
    """
    if a.dtype not in (torch.bfloat16, torch.float16):
        return a
    check_row_stochastic(a, mask)
    return a.float() / a.float().sum(-1, keepdim=True)


def is_causal(a: Float[Tensor, "*batch query token"], first: int = 0) -> bool:
    """Whether every matrix is lower triangular; `first` is the query of the first row.

    >>> is_causal(torch.tensor([[1.0, 0.0], [0.4, 0.6]]))
    True
    """
    return not bool(a.triu(1 + first).any())


def quotient(
    a: Float[Tensor, "*batch token token"],
) -> tuple[Float[Tensor, "*batch token token"], Float[Tensor, "*batch token token"]]:
    """`(U, B)` with `A U = U B`, `U`'s first column along `1` and `B = [[1, r], [0, C]]`.

    `C` is A on the space divided by `1`. Its spectrum is A's without the Perron root, found by that root's
    eigenvector and never by its value, which a reducible A may have more than once.
    """
    n = a.shape[-1]
    eye = torch.eye(n, dtype=a.dtype, device=a.device)
    if is_causal(a):
        # e_2 … e_n span an invariant space: C = A[1:, 1:] stays triangular, so its diagonal is exact
        u = eye.clone()
        u[:, 0] = 1.0
        b = a.clone()
        b[..., :, 0] = 0.0
        b[..., 0, 0] = 1.0
        return u.expand(a.shape), b
    direction = torch.full((n,), n**-0.5, dtype=a.dtype, device=a.device)
    reflector = direction - eye[0]
    u = eye - 2 * torch.outer(reflector, reflector) / (reflector @ reflector)
    b = u @ a @ u
    b[..., 1:, 0] = 0.0
    b[..., 0, 0] = 1.0
    return u.expand(a.shape), b


def attention_entropy(
    a: Float[Tensor, "*batch query key"], mask: Bool[Tensor, "*batch key"] | None = None
) -> Float[Tensor, "*batch"]:
    """Mean over queries of `−Σ_k A_qk log A_qk`, in nats; `mask` keeps the queries that count.

    >>> round(float(attention_entropy(torch.full((4, 4), 0.25))), 4)
    1.3863
    """
    entropy = -torch.xlogy(a, a).sum(-1)
    if mask is None:
        return entropy.mean(-1)
    kept = mask.to(entropy.dtype)
    return (entropy * kept).sum(-1) / kept.sum(-1)
