"""From free ψ to admissible eigenvalues Λ and back: one row per bound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from unsmooth.errors import OptionError

#: The sign that a mode gives to every eigenvalue of H (Corollary 3).
SIGNS = {"sharpening": -1.0, "smoothing": 1.0}

Psi = Float[Tensor, "*layer dim"]
Sign = Float[Tensor, "*layer 1"]


@dataclass(frozen=True)
class Bound:
    """Λ = `to_lambda(ψ, sign)`; `to_psi` is its inverse on admissible Λ; |Λ| ≤ `limit`.

    `saturated` marks the ψ that get no gradient (only a clip has such a region).
    """

    name: str
    limit: float | None
    to_lambda: Callable[[Psi, Sign], Psi]
    to_psi: Callable[[Psi, Sign], Psi]
    saturated: Callable[[Psi, Sign], Bool[Tensor, "*layer dim"]]
    signed: bool = True

    def __reduce__(self) -> tuple[Callable[[str], Bound], tuple[str]]:
        """Copies and pickles go by name."""
        return get_bound, (self.name,)

    def nearest(self, eigenvalues: Psi, sign: Sign) -> Psi:
        """The admissible value nearest to each real eigenvalue.

        >>> BOUNDS["clip"].nearest(torch.tensor([-2.0, -0.5, 0.3]), torch.tensor([-1.0]))
        tensor([-1.0000, -0.5000, -0.0000])
        """
        if not self.signed:
            return eigenvalues
        return sign * (sign * eigenvalues).clamp(min=0.0, max=self.limit)


def _never(psi: Psi, sign: Sign) -> Bool[Tensor, "*layer dim"]:
    return torch.zeros_like(psi, dtype=torch.bool)


def _outside(psi: Psi, sign: Sign) -> Bool[Tensor, "*layer dim"]:
    return (sign * psi < 0) | (sign * psi > 1)


#: At 0, and at the limit of a clip or tanh, there is no slope: an eigenvalue fitted there starts this far away, or it
#: could never move. (A step that float32 can tell from 1, for ψ is stored in it.)
_LEAST, _MOST = 1e-8, 1 - torch.finfo(torch.float32).eps


def _from_clip(eigenvalues: Psi, sign: Sign) -> Psi:
    return sign * (sign * eigenvalues).clamp(_LEAST, _MOST)


def _from_abs(eigenvalues: Psi, sign: Sign) -> Psi:
    return (sign * eigenvalues).clamp(min=_LEAST)


def _from_tanh(eigenvalues: Psi, sign: Sign) -> Psi:
    return (sign * eigenvalues).clamp(_LEAST, _MOST).atanh()  # tanh reaches ±1 only at infinity


def _from_square(eigenvalues: Psi, sign: Sign) -> Psi:
    return (sign * eigenvalues).clamp(min=_LEAST).sqrt()


def _same(eigenvalues: Psi, sign: Sign) -> Psi:
    return eigenvalues


BOUNDS: dict[str, Bound] = {
    # Section 4: clip(ψ, [−1, 0]) or clip(ψ, [0, 1]).
    "clip": Bound("clip", 1.0, lambda p, s: s * (s * p).clamp(0.0, 1.0), _from_clip, _outside),
    # Footnote 1: ±|ψ|, the unbounded half line.
    "abs": Bound("abs", None, lambda p, s: s * p.abs(), _from_abs, _never),
    # Ours: |ψ| for small ψ, smoothly below 1; gradients everywhere, unlike a clip, and at 0 too, unlike abs().
    "tanh": Bound("tanh", 1.0, lambda p, s: s * torch.where(p < 0, -1.0, 1.0) * p.tanh(), _from_tanh, _never),
    # The poster: ±ψ².
    "square": Bound("square", None, lambda p, s: s * p.square(), _from_square, _never),
    # Ours: no constraint at all, to be used with `spectral_penalty`.
    "free": Bound("free", None, lambda p, s: p.clone(), _same, _never, signed=False),
}


def get_bound(name: str) -> Bound:
    """The bound of this name, or an error that lists them."""
    if name not in BOUNDS:
        raise OptionError.unknown("bound", name, BOUNDS)
    return BOUNDS[name]
