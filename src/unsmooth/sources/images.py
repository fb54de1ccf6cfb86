"""One image as the model was trained to see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

if TYPE_CHECKING:
    from unsmooth.sources.loaded import ImageInput


def to_tensor(image: Any, spec: ImageInput) -> Float[Tensor, "3 height width"]:
    """Scale the short side (or both) to size / crop, cut the centre, subtract the mean, divide by the deviation."""
    from PIL import Image

    resample = {"nearest": Image.Resampling.NEAREST, "bilinear": Image.Resampling.BILINEAR}.get(
        spec.interpolation, Image.Resampling.BICUBIC
    )
    # rounded as timm and torchvision round, to the pixel; 1e-6 because a crop of 224/232 is not exact
    short = max(spec.size, int(spec.size / spec.crop + 1e-6))
    scaled = tuple(short if spec.squash else int(short * side / min(image.size)) for side in image.size)
    if scaled != image.size:
        image = image.resize(scaled, resample)
    left, top = (round((side - spec.size) / 2) for side in image.size)
    image = image.crop((left, top, left + spec.size, top + spec.size))
    pixels = torch.from_numpy(np.asarray(image, dtype=np.float32)).permute(2, 0, 1) / 255
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (spec.mean, spec.std))
    return (pixels - mean) / std
