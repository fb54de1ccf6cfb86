"""One image as the model was trained to see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

if TYPE_CHECKING:
    from unsmooth.models import ImageInput


def to_tensor(image: Any, spec: ImageInput) -> Float[Tensor, "3 height width"]:
    """Scale the short side to size / crop, cut the centre, subtract the mean, divide by the deviation."""
    from PIL import Image

    resample = {"nearest": Image.Resampling.NEAREST, "bilinear": Image.Resampling.BILINEAR}.get(
        spec.interpolation, Image.Resampling.BICUBIC
    )
    short = max(spec.size, round(spec.size / spec.crop))
    width, height = image.size
    scale = short / min(width, height)
    if scale != 1:
        image = image.resize((max(short, round(width * scale)), max(short, round(height * scale))), resample)
    left, top = (image.width - spec.size) // 2, (image.height - spec.size) // 2
    image = image.crop((left, top, left + spec.size, top + spec.size))
    pixels = torch.from_numpy(np.asarray(image, dtype=np.float32)).permute(2, 0, 1) / 255
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (spec.mean, spec.std))
    return (pixels - mean) / std
