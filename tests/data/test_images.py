from __future__ import annotations

import numpy as np
import pytest
import torch

from unsmooth.data.images import to_tensor
from unsmooth.models import ImageInput


@pytest.mark.parametrize("crop", [0.9, 0.875, 224 / 232, 1.0])
@pytest.mark.parametrize("size", [(500, 333), (301, 1001), (225, 224), (37, 53), (248, 248)])
def test_an_image_is_cut_to_the_pixel_as_timm_cuts_it(size: tuple[int, int], crop: float) -> None:
    from PIL import Image
    from timm.data import create_transform

    pixels = np.random.default_rng(0).integers(0, 255, (size[1], size[0], 3), dtype=np.uint8)
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    expected = create_transform((3, 224, 224), mean=mean, std=std, interpolation="bicubic", crop_pct=crop)
    image = Image.fromarray(pixels)
    found = to_tensor(image, ImageInput(224, mean, std, "bicubic", crop))
    torch.testing.assert_close(found, expected(image), atol=1e-5, rtol=0)
