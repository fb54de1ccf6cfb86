"""Defocus, glass, motion and zoom blur."""

from __future__ import annotations

import torch
from jaxtyping import Float64
from torch import Tensor

from unsmooth.training.tasks.images.corruptions.constants import CONSTANTS
from unsmooth.training.tasks.images.corruptions.filters import (
    Images,
    correlate,
    gaussian,
    motion_blur,
    take,
    uniform,
    zoom,
    zoom_factors,
)


def disk(radius: float, alias: float) -> Float64[Tensor, "side side"]:
    """A disk softened by a 3×3 Gaussian of width `alias`; CIFAR-C's 17×17 kernel without its zero margin."""
    at = torch.arange(-3, 4, dtype=torch.float64)
    aliased = ((at[:, None] ** 2 + at**2) <= radius**2).double()
    taps = torch.exp(-(torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64) ** 2) / (2 * alias**2))
    taps = taps / taps.sum()
    return correlate((aliased / aliased.sum())[None, None], taps[:, None] * taps)[0, 0, 1:-1, 1:-1]


def defocus_blur(x: Images, severity: int, rng: torch.Generator) -> Images:
    """Out of focus."""
    radius, alias = CONSTANTS["defocus_blur"][severity - 1]
    return correlate(x, disk(radius, alias))


def glass_blur(x: Images, severity: int, rng: torch.Generator) -> Images:
    """Pixels moved about by at most one place between two slight blurs.

    CIFAR-C swaps array views, so the second half of each swap writes a pixel onto itself: what remains is
    x[h, w] ← x[h', w'] with (h', w') up or left of (h, w). Going from the last pixel to the first, every
    source is still untouched, so one round is one gather.
    """
    sigma, rounds = CONSTANTS["glass_blur"][severity - 1]
    x = torch.floor(gaussian(x, sigma) * 255)
    count, _, height, width = x.shape
    rows, columns = torch.arange(height)[:, None], torch.arange(width)[None, :]
    movable = (rows > 1) & (columns > 1)
    for _ in range(rounds):
        moves = torch.randint(-1, 1, (2, count, height, width), generator=rng) * movable
        x = take(x, rows + moves[0], columns + moves[1])
    return gaussian(x / 255, sigma)


def motion(x: Images, severity: int, rng: torch.Generator) -> Images:
    """A moving camera, in a random direction within 45° of horizontal."""
    radius, sigma = CONSTANTS["motion_blur"][severity - 1]
    blurred = motion_blur(x, radius, sigma, uniform(rng, -45, 45, len(x)))
    return torch.round(blurred * 255) / 255


def zoom_blur(x: Images, severity: int, rng: torch.Generator) -> Images:
    """The mean of the image and its enlargements."""
    factors = zoom_factors(CONSTANTS["zoom_blur"][severity - 1])
    total = x.clone()
    for factor in factors:
        total += zoom(x, factor)
    return total / (len(factors) + 1)
