"""One image as the model was trained to see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from unsmooth.errors import DataError

if TYPE_CHECKING:
    from unsmooth.sources.loaded import ImageInput


#: Scaled whole before it is cut, an image of 1×20,000 pixels would take 15 GB. Beyond this, only what is kept is
#: scaled: the same pixels up to rounding, which is why it is not done always.
MOST_PIXELS = 1 << 24


def to_rgb(image: Any) -> Any:
    """8-bit RGB. Pillow cuts 16-bit and floating grey off at 255 instead of scaling it."""
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PNG"):  # by Pillow's release
        from PIL import Image

        return Image.fromarray((np.asarray(image).astype(np.int64) // 257).astype(np.uint8)).convert("RGB")
    if image.mode in ("I", "F"):
        raise DataError("it has pixels of 32 bits, whose range is not known: expected 8 or 16 bits")
    if image.mode == "P" and isinstance(image.info.get("transparency"), bytes):
        image = image.convert("RGBA")  # the same colours; Pillow warns where this is not done first
    return image.convert("RGB")


def to_tensor(image: Any, spec: ImageInput) -> Float[Tensor, "3 height width"]:
    """The centre of an image, the mean subtracted, divided by the deviation."""
    pixels = torch.from_numpy(np.asarray(centre(image, spec), dtype=np.float32)).permute(2, 0, 1) / 255
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (spec.mean, spec.std))
    return (pixels - mean) / std


def centre(image: Any, spec: ImageInput) -> Any:
    """Scale the short side (or both) to size / crop, cut the centre."""
    from PIL import Image

    resample = {"nearest": Image.Resampling.NEAREST, "bilinear": Image.Resampling.BILINEAR}.get(
        spec.interpolation, Image.Resampling.BICUBIC
    )
    # rounded as timm and torchvision round, to the pixel; 1e-6 because a crop of 224/232 is not exact
    short = max(spec.size, int(spec.size / spec.crop + 1e-6))
    scaled = tuple(short if spec.squash else int(short * side / min(image.size)) for side in image.size)
    left, top = (round((side - spec.size) / 2) for side in scaled)
    kept = (left, top, left + spec.size, top + spec.size)
    if scaled[0] * scaled[1] > MOST_PIXELS:
        box = [edge * image.size[i % 2] / scaled[i % 2] for i, edge in enumerate(kept)]
        return image.resize((spec.size, spec.size), resample, box=box)
    return (image if scaled == image.size else image.resize(scaled, resample)).crop(kept)
