"""A real image as a start for simulations: its patches as tokens."""

from __future__ import annotations

from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from unsmooth.errors import DataError, MissingExtraError
from unsmooth.sources.images import to_rgb


def image_patches(path: str | Path, patch: int = 8, side: int = 64) -> Float[Tensor, "token dim"]:
    """The `(side/patch)²` patches of an image's centre as standardised rows of `3·patch²` numbers."""
    try:
        import numpy as np
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError.needed("pillow", "vision", "reading images") from error
    path = Path(path)
    if not path.is_file():
        raise DataError(f"no image at {path}: expected a file that pillow can read")
    try:
        with Image.open(path) as image:
            small = to_rgb(image)
            edge = min(small.size)
            left, top = (small.width - edge) // 2, (small.height - edge) // 2
            small = small.crop((left, top, left + edge, top + edge)).resize((side, side))
            pixels = torch.from_numpy(np.asarray(small, dtype=np.float64) / 255)
    except (OSError, DataError) as error:
        raise DataError(f"{path} is not an image that pillow can read ({error})") from error
    return patches_of(pixels.permute(2, 0, 1), patch)


def patches_of(image: Float[Tensor, "channel height width"], patch: int) -> Float[Tensor, "token dim"]:
    """Non-overlapping patches as rows, standardised over the whole image."""
    channels, height, width = image.shape
    grid = image.reshape(channels, height // patch, patch, width // patch, patch)
    rows = grid.permute(1, 3, 0, 2, 4).reshape(-1, channels * patch * patch)
    return (rows - rows.mean()) / rows.std()
