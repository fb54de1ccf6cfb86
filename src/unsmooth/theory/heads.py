"""The single-head verdict for many heads at once, from spectra only."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Complex, Float
from torch import Tensor

from unsmooth.metrics.tolerance import tolerance
from unsmooth.theory.dominance import Endpoint, Kind, pair_eigenvalues
from unsmooth.theory.spectrum import AttentionSpectrum


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
    products = pair_eigenvalues(lambda_h, attention.eigenvalues, residual=False)
    moduli = (1 + products).abs()
    by_token = moduli.amax(-1)  # the best H for each eigenvalue of A
    low, high = by_token[:, -1], by_token[:, :-1].amax(-1)
    top = torch.maximum(low, high)
    allowed = tolerance(dtype, moduli.shape[-2]) * top.clamp_min(1)
    perron, other = low >= top - allowed, high >= top - allowed
    slow = products.real.amax(-1)
    return HeadVerdicts(
        exponent=high.log() - low.log(),
        small_step=slow[:, :-1].amax(-1) - slow[:, -1],
        kinds=[_kind(bool(p), bool(o)) for p, o in zip(perron, other, strict=True)],
        endpoints=_endpoints(attention.others, by_token, perron, allowed),
    )


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
