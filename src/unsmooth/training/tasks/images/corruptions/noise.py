"""Gaussian, shot and impulse noise."""

from __future__ import annotations

import torch

from unsmooth.training.tasks.images.corruptions.constants import CONSTANTS
from unsmooth.training.tasks.images.corruptions.filters import Images


def gaussian_noise(x: Images, severity: int, rng: torch.Generator) -> Images:
    """Additive normal noise."""
    scale = CONSTANTS["gaussian_noise"][severity - 1]
    return x + scale * torch.randn(x.shape, generator=rng, dtype=x.dtype)


def shot_noise(x: Images, severity: int, rng: torch.Generator) -> Images:
    """Poisson noise of a photon count."""
    photons = CONSTANTS["shot_noise"][severity - 1]
    return torch.poisson(x * photons, generator=rng) / photons


def impulse_noise(x: Images, severity: int, rng: torch.Generator) -> Images:
    """Salt and pepper on single channel values, as scikit-image's `random_noise` does."""
    amount = CONSTANTS["impulse_noise"][severity - 1]
    hit = torch.rand(x.shape, generator=rng) <= amount
    salt = (torch.rand(x.shape, generator=rng) <= 0.5).to(x.dtype)
    return torch.where(hit, salt, x)
