"""Brightness, contrast, elastic transform, pixelate and JPEG compression."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from unsmooth.training.tasks.images.corruptions.constants import CONSTANTS
from unsmooth.training.tasks.images.corruptions.filters import Images, gaussian, sample, uniform


def brightness(x: Images, severity: int, rng: torch.Generator) -> Images:
    """The value of HSV raised; hue and saturation kept, so all channels grow by one factor."""
    value = x.amax(1, keepdim=True)
    raised = (value + CONSTANTS["brightness"][severity - 1]).clamp(0, 1)
    return torch.where(value > 0, x * raised / value.clamp(min=1e-12), raised)


def contrast(x: Images, severity: int, rng: torch.Generator) -> Images:
    """Every channel drawn towards its mean."""
    mean = x.mean((2, 3), keepdim=True)
    return (x - mean) * CONSTANTS["contrast"][severity - 1] + mean


def elastic_transform(x: Images, severity: int, rng: torch.Generator) -> Images:
    """A random affine map, then a smooth random displacement."""
    size = x.shape[-1]
    alpha, sigma, reach = CONSTANTS["elastic_transform"][severity - 1]
    count = len(x)
    rows, columns = (t.double() for t in torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij"))
    inverse = _affine(count, size, size * reach, rng)
    u = inverse[:, 0, 0, None, None] * columns + inverse[:, 0, 1, None, None] * rows + inverse[:, 0, 2, None, None]
    v = inverse[:, 1, 0, None, None] * columns + inverse[:, 1, 1, None, None] * rows + inverse[:, 1, 2, None, None]
    x = sample(x, v, u, "reflect101")
    noise = uniform(rng, -1, 1, count, 2, size, size)
    shift = gaussian(noise, size * sigma, truncate=3.0, border="reflect") * (size * alpha)
    return sample(x, rows + shift[:, 1], columns + shift[:, 0], "reflect")


def _affine(count: int, size: int, reach: float, rng: torch.Generator) -> Float64[Tensor, "image 2 3"]:
    """Output-to-input maps that send three moved corners back to where they were (x, y order)."""
    centre, arm = size // 2, size // 3
    corners = torch.tensor(
        [[centre + arm, centre + arm], [centre + arm, centre - arm], [centre - arm, centre - arm]], dtype=torch.float64
    )
    moved = corners + uniform(rng, -reach, reach, count, 3, 2)
    square = torch.cat([moved, torch.ones(count, 3, 1, dtype=torch.float64)], -1)
    return torch.linalg.solve(square, corners.expand(count, 3, 2)).mT


def pixelate(x: Images, severity: int, rng: torch.Generator) -> Images:
    """Made smaller and larger again with a box filter."""
    from PIL import Image

    size = x.shape[-1]
    small = int(size * CONSTANTS["pixelate"][severity - 1])

    def change(image: Any) -> Any:
        box = Image.Resampling.BOX
        return image.resize((small, small), box).resize((size, size), box)

    return _one_by_one(x, change)


def jpeg_compression(x: Images, severity: int, rng: torch.Generator) -> Images:
    """Saved as JPEG and read back."""
    from PIL import Image

    quality = CONSTANTS["jpeg_compression"][severity - 1]

    def change(image: Any) -> Any:
        file = io.BytesIO()
        image.save(file, "JPEG", quality=quality)
        return Image.open(file)

    return _one_by_one(x, change)


def _one_by_one(x: Images, change: Callable[[Any], Any]) -> Images:
    """Through Pillow, image by image: its own rounding is part of these corruptions."""
    from PIL import Image

    arrays = (x * 255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy()
    changed = np.stack([np.asarray(change(Image.fromarray(a))) for a in arrays])
    return torch.from_numpy(changed).permute(0, 3, 1, 2).double() / 255
