"""How smooth are these features? Pure functions from (..., tokens, dim) to one float64 value per sample.

All of them take any float dtype on any device, compute in float64, are differentiable, and leave out the
tokens where `mask` (bool, (..., tokens)) is False, whatever these hold. Conventions at the edges:

- a token of zeros has no direction and counts with cosine 0;
- a mean of zero makes HFC/LFC infinite, features that are all zero make it nan (0/0), ranks too;
- equal tokens give HFC/LFC 0 (or float64 rounding), cosine 1, effective rank 1;
- NaN or infinity in a kept token gives nan.
"""

from __future__ import annotations

from collections.abc import Callable

from jaxtyping import Bool, Float
from torch import Tensor

from unsmooth.errors import FeatureError, OptionError
from unsmooth.metrics import values
from unsmooth.metrics.features import Features

Mask = Bool[Tensor, "*batch token"] | None
NORMS = ("fro", "spectral")


def hfc_lfc_ratio(
    x: Float[Tensor, "*batch token dim"], norm: str = "fro", mask: Mask = None
) -> Float[Tensor, "*batch"]:
    """‖HFC[X]‖ / ‖LFC[X]‖: deviation from the mean token over the mean token (Definition 1).

    >>> import torch
    >>> round(hfc_lfc_ratio(torch.tensor([[4.0, 3.0], [4.0, -3.0]])).item(), 6)
    0.75
    """
    if norm not in NORMS:
        raise OptionError.unknown("norm", norm, NORMS)
    return _apply(values.hfc_lfc if norm == "fro" else values.hfc_lfc_spectral, x, mask)


def cosine_similarity(x: Float[Tensor, "*batch token dim"], mask: Mask = None) -> Float[Tensor, "*batch"]:
    """Mean signed cosine over pairs of tokens i < j (Definition 2), in O(tokens · dim).

    >>> import torch
    >>> round(cosine_similarity(torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 3.0]])).item(), 6)
    0.333333
    """
    return _apply(values.cosine_similarity, x, mask, at_least=2)


def effective_rank(x: Float[Tensor, "*batch token dim"], mask: Mask = None) -> Float[Tensor, "*batch"]:
    """exp of the entropy of σ/Σσ (Definition 3): 1 for rank one, min(n, d) for equal singular values.

    >>> import torch
    >>> round(effective_rank(torch.eye(4)).item(), 6)
    4.0
    """
    return _apply(values.effective_rank, x, mask)


PAPER: dict[str, Callable[..., Tensor]] = {  # Definitions 1 to 3, by their names in the registry
    "hfc_lfc": hfc_lfc_ratio,
    "cosine_similarity": cosine_similarity,
    "effective_rank": effective_rank,
}


def rankme(x: Float[Tensor, "*batch token dim"], mask: Mask = None) -> Float[Tensor, "*batch"]:
    """RankMe: the effective rank with p = σ/Σσ + 1e-7 over min(kept tokens, dim) singular values.

    >>> import torch
    >>> round(rankme(torch.eye(4)).item(), 3)
    4.0
    """
    return _apply(values.rankme, x, mask)


def stable_rank(x: Float[Tensor, "*batch token dim"], mask: Mask = None) -> Float[Tensor, "*batch"]:
    """‖X‖_F² / ‖X‖₂².

    >>> import torch
    >>> round(stable_rank(torch.diag(torch.tensor([2.0, 1.0]))).item(), 6)
    1.25
    """
    return _apply(values.stable_rank, x, mask)


def participation_ratio(x: Float[Tensor, "*batch token dim"], mask: Mask = None) -> Float[Tensor, "*batch"]:
    """(Σσ²)² / Σσ⁴.

    >>> import torch
    >>> round(participation_ratio(torch.eye(3)).item(), 6)
    3.0
    """
    return _apply(values.participation_ratio, x, mask)


def dirichlet(x: Float[Tensor, "*batch token dim"], mask: Mask = None) -> Float[Tensor, "*batch"]:
    """‖HFC[X]‖_F², which is Σ_ij ‖x_i − x_j‖² / (2n).

    >>> import torch
    >>> round(dirichlet(torch.tensor([[4.0, 3.0], [4.0, -3.0]])).item(), 6)
    18.0
    """
    return _apply(values.dirichlet, x, mask)


def dong2021(x: Float[Tensor, "*batch token dim"], mask: Mask = None) -> Float[Tensor, "*batch"]:
    """‖X − 1x̄ᵀ‖ / ‖X‖ with the norm √(‖·‖₁ ‖·‖_∞) (Dong et al. 2021).

    >>> import torch
    >>> round(dong2021(torch.tensor([[1.0], [-1.0]])).item(), 6)
    1.0
    """
    return _apply(values.dong2021, x, mask)


def vita2022(x: Float[Tensor, "*batch token dim"], mask: Mask = None) -> Float[Tensor, "*batch"]:
    """Mean of |cos| over all ordered pairs, the diagonal included (Wang et al. 2022, Anti-oversmoothing).

    >>> import torch
    >>> round(vita2022(torch.eye(2)).item(), 6)
    0.5
    """
    return _apply(values.vita2022, x, mask)


def check_count(count: Float[Tensor, "*batch"], at_least: int) -> None:
    """Raise FeatureError if a sample keeps no token, or fewer than a metric needs."""
    if bool((count < 1).any()):
        raise FeatureError(
            f"expected at least {at_least} tokens, but nothing is left of {int((count < 1).sum())} of "
            f"{count.numel()} samples: check the mask (True = kept), or drop empty inputs"
        )
    if bool((count < at_least).any()):
        raise FeatureError(
            f"expected at least {at_least} tokens (a pair has no cosine otherwise), got {int(count.min())}: "
            "give longer inputs or keep more tokens"
        )


def _apply(value: Callable[[Features], Tensor], x: Tensor, mask: Mask, at_least: int = 1) -> Tensor:
    features = Features(x, mask)
    if mask is not None or features.tokens < at_least:
        check_count(features.count, at_least)
    return value(features)
