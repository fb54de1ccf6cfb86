"""One function per metric, from the shared statistics to one value per sample."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from unsmooth.metrics.features import Features, keep, units
from unsmooth.metrics.spectrum import safe_sqrt

RANKME_EPSILON = 1e-7  # Garrido et al. 2023, equation 2
PAIR_CHUNK = 1 << 22  # elements of the token × token matrix that exist at a time, over the batch


def hfc_lfc(f: Features) -> Float[Tensor, "*batch"]:
    """‖HFC[X]‖_F / ‖LFC[X]‖_F (Definition 1)."""
    return safe_sqrt(f.hfc_square) / safe_sqrt(f.lfc_square)


def hfc_lfc_spectral(f: Features) -> Float[Tensor, "*batch"]:
    """‖HFC[X]‖₂ / ‖LFC[X]‖₂, the numerator being the largest singular value."""
    return f.singular_values("hfc_problem")[..., 0] / safe_sqrt(f.lfc_square)


def cosine_similarity(f: Features) -> Float[Tensor, "*batch"]:
    """Mean cosine over pairs i < j (Definition 2): (‖Σ x̂_i‖² − Σ‖x̂_i‖²) / (n(n−1))."""
    nonzero = (f.norms > 0).sum(-1)
    return (f.unit_sum_square - nonzero) / (f.count * (f.count - 1))


def effective_rank(f: Features) -> Float[Tensor, "*batch"]:
    """exp(−Σ p log p), p = σ/Σσ (Definition 3): log Σσ − Σσ log σ / Σσ needs no single σ."""
    if f.without_eigenvalues("problem"):
        total, logs = f.root_sums()
        return (total.log() - logs / total).exp()
    sigma = f.singular_values()
    return entropy(sigma / sigma.sum(-1, keepdim=True)).exp()


def rankme(f: Features) -> Float[Tensor, "*batch"]:
    """The effective rank with p = σ/Σσ + 1e-7 over the first min(n, d) singular values."""
    sigma = f.singular_values()
    p = sigma / sigma.sum(-1, keepdim=True) + RANKME_EPSILON
    index = torch.arange(sigma.shape[-1], device=sigma.device)
    return entropy(torch.where(index < f.rank_bound[..., None], p, 0.0)).exp()


def stable_rank(f: Features) -> Float[Tensor, "*batch"]:
    """‖X‖_F² / ‖X‖₂²."""
    return f.square / f.singular_values()[..., 0].square()


def participation_ratio(f: Features) -> Float[Tensor, "*batch"]:
    """(Σσ²)² / Σσ⁴."""
    square = f.singular_values().square()
    return square.sum(-1).square() / square.square().sum(-1)


def dirichlet(f: Features) -> Float[Tensor, "*batch"]:
    """‖HFC[X]‖_F² = Σ_ij ‖x_i − x_j‖² / (2n)."""
    return f.hfc_square * f.scale.square()


def dong2021(f: Features) -> Float[Tensor, "*batch"]:
    """‖X − 1x̄ᵀ‖ / ‖X‖ with the norm √(‖·‖₁ ‖·‖_∞)."""
    return _composite_norm(f.centred) / _composite_norm(f.x)


def vita2022(f: Features) -> Float[Tensor, "*batch"]:
    """Mean of |cos| over all n² ordered pairs, i = j included."""
    unit = units(f.x) if f.extreme else keep(f.x / torch.where(f.norms > 0, f.norms, 1.0)[..., None], f.mask)
    step = max(1, PAIR_CHUNK // max(1, f.batch.numel() * f.tokens))
    total = torch.zeros_like(f.count)
    for rows in unit.split(step, dim=-2):
        total = total + (rows @ unit.mT).abs().sum((-2, -1))
    return total / f.count.square()


def entropy(p: Float[Tensor, "*batch value"]) -> Float[Tensor, "*batch"]:
    """−Σ p log p with 0 log 0 = 0, and gradient 0 there."""
    positive = ~(p <= 0)
    inside = torch.where(positive, p, 1.0)
    return -torch.where(positive, inside * inside.log(), 0.0).sum(-1)


def _composite_norm(x: Float[Tensor, "*batch token dim"]) -> Float[Tensor, "*batch"]:
    size = x.abs()
    return safe_sqrt(size.sum(-2).amax(-1)) * safe_sqrt(size.sum(-1).amax(-1))
