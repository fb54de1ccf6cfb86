"""Lemma 2's case table as published, where it holds, and Corollary 3."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from unsmooth.errors import OptionError


@dataclass(frozen=True)
class LemmaCase:
    """The pair that Lemma 2 names: `lambda_h` with A's largest (type 1) or smallest (type 2) eigenvalue."""

    type: Literal[1, 2]
    lambda_h: complex
    lambda_a: float
    case: str
    holds: bool  # whether the assumptions that the published proof needs are met


def lemma2(lambda_h: Complex[Tensor, " feature"], lambda_a: Float[Tensor, " token"]) -> LemmaCase:
    """The published case table; `lambda_a` real in (−1, 1] with its largest equal to 1.

    Two of its lines need more than the paper states, and `holds` says whether they have it (real `lambda_h`):

    - `λ_1^A > 0`, `|1 + λ_r| < 1`: no λ_H below −1. Counterexample: H {−1.9, −1.85}, A {0.9, 1}: the table names
      |1 − 1.85·0.9| = 0.665, the maximum is |1 − 1.9| = 0.9. So λ_H ≥ −2 is not enough for sharpening: this layer
      smooths, and Corollary 3's bound of −1 is the one that holds for every A.
    - `λ_1^A < 0`: the negative eigenvalue it flips must also be the most negative one. Counterexample:
      H {1, −0.1, −1.5}, A {−0.9, 1}: the table names |1 + 1| = 2, the maximum is |1 + 1.5·0.9| = 2.35.
    """
    values = torch.as_tensor(lambda_a)
    if values.is_complex() or not torch.isclose(values.double().max(), torch.ones((), dtype=torch.float64)):
        raise OptionError("Lemma 2 wants real eigenvalues of A in (−1, 1] that include 1; use dominance for others")
    smallest = float(values.min())
    h = torch.as_tensor(lambda_h).to(torch.complex128)
    h = h[(1 + h).abs().argsort(stable=True)]
    last = h[-1]
    if smallest > 0:
        if (1 + last).abs() >= 1:
            return _case(1, last, smallest, "λ_1^A > 0, |1 + λ_r| ≥ 1", True)
        chosen = h[h.abs().argmin()]
        return _case(2, chosen, smallest, "λ_1^A > 0, |1 + λ_r| < 1", _real(h) and bool((h.real >= -1).all()))
    negative = h[h.real < 0]
    if last.real >= 0:
        if not len(negative):
            return _case(1, last, smallest, "λ_1^A < 0, φ_r ≤ π/2, no λ_k", _real(h))
        flipped, where = negative[-1], "λ_1^A < 0, φ_r ≤ π/2"
    else:
        flipped, where = last, "λ_1^A < 0, φ_r > π/2"
    holds = _real(h) and bool(flipped.real <= h.real.min())
    if (1 + last).abs() > (1 + flipped * smallest).abs():
        return _case(1, last, smallest, where, holds)
    return _case(2, flipped, smallest, where, holds)


def corollary3(lambda_h: Complex[Tensor, " feature"]) -> Literal["sharpening", "smoothing"] | None:
    """What Corollary 3 guarantees for every attention matrix, or `None`; with a step size s, of sλ.

    >>> corollary3(torch.tensor([-1.0, -0.1])), corollary3(torch.tensor([0.1, 7.0])), corollary3(torch.zeros(1))
    ('sharpening', 'smoothing', None)
    """
    values = torch.as_tensor(lambda_h).to(torch.complex128)
    if not _real(values):
        return None
    if bool(((values.real >= -1) & (values.real < 0)).all()):
        return "sharpening"
    return "smoothing" if bool((values.real > 0).all()) else None


def _real(values: Tensor) -> bool:
    return bool((values.imag == 0).all())


def _case(type_: Literal[1, 2], chosen: Tensor, smallest: float, case: str, holds: bool) -> LemmaCase:
    return LemmaCase(type_, complex(chosen), 1.0 if type_ == 1 else smallest, case, holds)
