"""The single-head verdict for many heads at once, from spectra only."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Complex, Float
from torch import Tensor

from unsmooth.metrics.tolerance import tolerance
from unsmooth.theory.dominance import Endpoint, Kind, pair_eigenvalues
from unsmooth.theory.spectrum import AttentionSpectrum

_PAIRS = 2**21  # eigenvalues of products that are held at a time


@dataclass(frozen=True)
class HeadVerdicts:
    """One entry per head. A pair with `λ_H = 0` never moves, so it ties type (1) with type (2) at modulus 1."""

    exponent: Float[Tensor, " head"]
    small_step: Float[Tensor, " head"]
    kinds: list[Kind]
    endpoints: list[Endpoint]


def head_verdicts(
    lambda_h: Complex[Tensor, "head key"], attention: AttentionSpectrum, zeros: bool, dtype: torch.dtype
) -> HeadVerdicts:
    """γ, small-step exponent, kind and endpoint of each head.

    `zeros` adds the eigenvalue 0 that a head with fewer key features than the model has; without it the paper's
    count over the `r` listed eigenvalues is kept.
    """
    if zeros:
        lambda_h = torch.cat([lambda_h, torch.zeros_like(lambda_h[:, :1])], dim=-1)
    # the best H for each eigenvalue of A; of long inputs a few heads at a time, since pairs are n · k a head
    at_once = max(1, _PAIRS // (attention.eigenvalues.shape[-1] * lambda_h.shape[-1]))
    parts = zip(lambda_h.split(at_once), attention.eigenvalues.split(at_once), strict=True)
    by_token, slow = (torch.cat(found) for found in zip(*(_best(*part) for part in parts), strict=True))
    low, high = by_token[:, -1], by_token[:, :-1].amax(-1)
    top = torch.maximum(low, high)
    allowed = tolerance(dtype, by_token.shape[-1]) * top.clamp_min(1)
    perron, other = low >= top - allowed, high >= top - allowed
    return HeadVerdicts(
        exponent=high.log() - low.log(),
        small_step=slow[:, :-1].amax(-1) - slow[:, -1],
        kinds=[_kind(bool(p), bool(o)) for p, o in zip(perron, other, strict=True)],
        endpoints=_endpoints(attention.others, by_token, perron, allowed),
    )


def _best(
    lambda_h: Complex[Tensor, "head key"], lambda_a: Complex[Tensor, "head token"]
) -> tuple[Float[Tensor, "head token"], Float[Tensor, "head token"]]:
    """The largest `|1 + λ_A λ_H|` and the largest `Re λ_A λ_H` over H's eigenvalues."""
    products = pair_eigenvalues(lambda_h, lambda_a, residual=False)
    return (1 + products).abs().amax(-1), products.real.amax(-1)


def _kind(perron: bool, other: bool) -> Kind:
    return "mixed" if perron and other else "smoothing" if perron else "sharpening"


def _endpoints(
    others: Complex[Tensor, "head rest"],
    by_token: Float[Tensor, "head token"],
    perron: Bool[Tensor, " head"],
    allowed: Float[Tensor, " head"],
) -> list[Endpoint]:
    best = by_token[:, :-1].argmax(-1)
    winner = others.gather(-1, best[:, None])[:, 0]
    smallest = (winner.real <= others.real.amin(-1) + allowed) & (winner.imag.abs() <= allowed)
    return ["largest" if p else "smallest" if s else "neither" for p, s in zip(perron, smallest, strict=True)]
