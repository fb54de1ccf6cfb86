"""Snow, frost and fog."""

from __future__ import annotations

import torch

from unsmooth.training.tasks.images.corruptions.constants import CONSTANTS
from unsmooth.training.tasks.images.corruptions.filters import Images, motion_blur, plasma, uniform, zoom


def snow(x: Images, severity: int, rng: torch.Generator) -> Images:
    """Motion-blurred flakes over a paler image."""
    loc, scale, factor, threshold, radius, sigma, keep = CONSTANTS["snow"][severity - 1]
    flakes = loc + scale * torch.randn(len(x), 1, *x.shape[2:], generator=rng, dtype=x.dtype)
    flakes = zoom(flakes, factor)
    flakes = torch.where(flakes < threshold, 0.0, flakes).clamp(0, 1)
    flakes = torch.floor(flakes * 255) / 255
    flakes = torch.round(motion_blur(flakes, radius, sigma, uniform(rng, -135, -45, len(x))) * 255) / 255
    grey = 0.299 * x[:, 0:1] + 0.587 * x[:, 1:2] + 0.114 * x[:, 2:3]
    pale = keep * x + (1 - keep) * torch.maximum(x, grey * 1.5 + 0.5)
    return pale + flakes + flakes.rot90(2, (2, 3))


def frost(x: Images, severity: int, rng: torch.Generator) -> Images:
    """Ice on the lens. CIFAR-C blends in crops of six photographs; here ridges of a plasma map stand in."""
    keep, ice = CONSTANTS["frost"][severity - 1]
    field = plasma(len(x), x.shape[-1], 1.75, rng)
    ridges = 1 - (2 * field - 1).abs()
    tint = torch.tensor([0.85, 0.95, 1.0], dtype=x.dtype)[:, None, None]  # ice is slightly blue
    return keep * x + ice * ridges[:, None] * tint


def fog(x: Images, severity: int, rng: torch.Generator) -> Images:
    """A plasma map added, the whole scaled back."""
    strength, decay = CONSTANTS["fog"][severity - 1]
    top = x.amax((1, 2, 3), keepdim=True)
    return (x + strength * plasma(len(x), x.shape[-1], decay, rng)[:, None]) * top / (top + strength)
