"""Rectangles inside an image: random resized crops and random erasing, drawn as torchvision and timm draw them."""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float, Int32, Int64
from torch import Tensor

TRIES = 10  # a rectangle that does not fit is drawn again, as often as torchvision and timm do
CROP_RATIO = 4 / 3  # of the sides, or its inverse, at most
ERASED = (0.02, 1 / 3)  # share of the image's area
ERASED_RATIO = 1 / 0.3


def draw_crops(shape: tuple[int, ...], least: float, size: int, rng: torch.Generator) -> Int64[Tensor, "*shape 4"]:
    """Top, left, height and width, as torchvision's `RandomResizedCrop`; the whole image where none of ten fits."""
    height, width, fits = _draw(shape, (least, 1.0), CROP_RATIO, size, rng)
    return _place(torch.where(fits, height, size), torch.where(fits, width, size), size, rng)


def draw_erased(shape: tuple[int, ...], prob: float, size: int, rng: torch.Generator) -> Int64[Tensor, "*shape 6"]:
    """Top, left, height and width, as timm's `RandomErasing`, and which part of the noise is put there.

    Where nothing is erased, height and width are zero.
    """
    height, width, fits = _draw(shape, ERASED, ERASED_RATIO, size - 1, rng, size)
    fits &= torch.rand(shape, generator=rng, dtype=torch.float64) < prob
    where = _place(torch.where(fits, height, 0), torch.where(fits, width, 0), size, rng)
    return torch.cat([where, torch.randint(0, size, (*shape, 2), generator=rng)], -1)


def _draw(
    shape: tuple[int, ...], area: tuple[float, float], ratio: float, most: int, rng: torch.Generator, size: int = 0
) -> tuple[Int64[Tensor, "*shape"], Int64[Tensor, "*shape"], Bool[Tensor, "*shape"]]:
    """Sides of the first of ten rectangles whose sides are `most` at most, and whether there is one."""
    draws = torch.rand((2, TRIES, *shape), generator=rng, dtype=torch.float64)
    pixels = (area[0] + (area[1] - area[0]) * draws[0]) * (size or most) ** 2
    sides = torch.exp(math.log(ratio) * (2 * draws[1] - 1))
    width, height = (pixels * sides).sqrt().round().long(), (pixels / sides).sqrt().round().long()
    fits = (width > 0) & (height > 0) & (width <= most) & (height <= most)
    first = fits.to(torch.int8).argmax(0, keepdim=True)
    height, width, fits = (t.gather(0, first)[0] for t in (height, width, fits))
    return height, width, fits


def _place(
    height: Int64[Tensor, "*shape"], width: Int64[Tensor, "*shape"], size: int, rng: torch.Generator
) -> Int64[Tensor, "*shape 4"]:
    draws = torch.rand((2, *height.shape), generator=rng, dtype=torch.float64)
    top, left = ((draw * (size - side + 1)).long() for draw, side in zip(draws, (height, width), strict=True))
    return torch.stack([top, left, height, width], -1)


def resized_crop(
    x: Int32[Tensor, "batch channel size size"], where: Int64[Tensor, "batch 4"], flip: Bool[Tensor, batch]
) -> Int32[Tensor, "batch channel size size"]:
    """These parts of the images in the images' size, mirrored where `flip` says so; Pillow's bicubic filter."""
    size = x.shape[-1]
    top, left, height, width = where.unbind(-1)
    across = _weights(left, width, size)
    across = torch.where(flip[:, None, None], across.flip(1), across)
    rows = torch.einsum("bij,bchj->bchi", across, x.to(torch.float32)).round().clamp(0, 255)
    return torch.einsum("bij,bcjw->bciw", _weights(top, height, size), rows).round().clamp(0, 255).to(torch.int32)


def _weights(start: Int64[Tensor, batch], length: Int64[Tensor, batch], size: int) -> Float[Tensor, "batch size size"]:
    """What each pixel of the image gives to each pixel of the crop; nothing outside the crop counts."""
    at = torch.arange(size, device=start.device)
    step = (length.to(torch.float32) / size)[:, None]
    centre = (at + 0.5) * step + start[:, None]
    t = (at + 0.5 - centre[:, :, None]).abs()  # at most one image pixel a crop's: the filter is not widened
    near, far = 1 + t * t * (1.5 * t - 2.5), 2 + t * (t * (2.5 - 0.5 * t) - 4)  # a = −1/2
    inside = (at >= start[:, None]) & (at < (start + length)[:, None])
    found = torch.where(t < 1, near, torch.where(t < 2, far, 0.0)) * inside[:, None]
    return found / found.sum(-1, keepdim=True)


def erase(
    x: Float[Tensor, "batch channel height width"], where: Int64[Tensor, "batch 6"], noise: Float[Tensor, "channel y x"]
) -> Float[Tensor, "batch channel height width"]:
    """Normal noise in a rectangle of each image: a window of one large piece, which begins where the draw says."""
    top, left, height, width, down, right = where.unbind(-1)
    ys, xs = (torch.arange(side, device=x.device) for side in x.shape[2:])
    tall = (ys >= top[:, None]) & (ys < (top + height)[:, None])
    wide = (xs >= left[:, None]) & (xs < (left + width)[:, None])
    window = noise[:, (ys + down[:, None])[:, :, None], (xs + right[:, None])[:, None, :]].transpose(0, 1)
    return torch.where((tall[:, :, None] & wide[:, None, :])[:, None], window, x)
