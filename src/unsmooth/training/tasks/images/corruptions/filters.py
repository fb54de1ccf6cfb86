"""Building blocks of the corruptions: separable Gaussian, motion blur, zoom, sampling at any position, plasma."""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor
from torch.nn import functional

Images = Float64[Tensor, "image channel height width"]


def gaussian_taps(sigma: float, truncate: float) -> Float64[Tensor, tap]:
    """Weights of scipy's `gaussian_filter`: radius ⌊truncate·σ + ½⌋."""
    radius = int(truncate * sigma + 0.5)
    at = torch.arange(-radius, radius + 1, dtype=torch.float64)
    taps = torch.exp(-0.5 * (at / sigma) ** 2) if radius else torch.ones(1, dtype=torch.float64)
    return taps / taps.sum()


def gaussian(x: Images, sigma: float, truncate: float = 4.0, border: str = "nearest") -> Images:
    """scipy's Gaussian filter; `border` is scipy's "nearest" or "reflect" (the edge pixel repeated)."""
    if sigma == 0:
        return x
    taps = gaussian_taps(sigma, truncate).to(x.device)
    radius = len(taps) // 2
    for axis in (2, 3):
        place = at_border(torch.arange(-radius, x.shape[axis] + radius, device=x.device), x.shape[axis], border)
        padded = x.index_select(axis, place)
        x = sum(w * padded.narrow(axis, i, x.shape[axis]) for i, w in enumerate(taps))
    return x


def at_border(place: Int64[Tensor, "*shape"], size: int, border: str) -> Int64[Tensor, "*shape"]:
    """Positions outside 0 … size−1 brought inside, by scipy's and OpenCV's names for the rule."""
    if border == "nearest":
        return place.clamp(0, size - 1)
    if border == "reflect":  # d c b a | a b c d | d c b a
        place = place % (2 * size)
        return torch.where(place < size, place, 2 * size - 1 - place)
    place = place.abs() % (2 * size - 2)  # "reflect101": d c b | a b c d | c b a
    return torch.where(place < size, place, 2 * size - 2 - place)


def correlate(x: Images, kernel: Float64[Tensor, "side side"]) -> Images:
    """OpenCV's `filter2D` with its default border (reflect101)."""
    pad = kernel.shape[0] // 2
    padded = functional.pad(x, (pad,) * 4, mode="reflect")
    out = torch.zeros_like(x)
    for i, row in enumerate(kernel.tolist()):  # shifts and sums: float64 convolutions are slow on a CPU
        for j, weight in enumerate(row):
            if weight:
                out += weight * padded[:, :, i : i + x.shape[2], j : j + x.shape[3]]
    return out


def motion_blur(x: Images, radius: int, sigma: float, degrees: Float64[Tensor, image]) -> Images:
    """ImageMagick's motion blur: half a Gaussian along a line of whole-pixel steps, edges repeated."""
    width = 2 * radius + 1
    steps = torch.arange(width, dtype=torch.float64)
    taps = torch.exp(-(steps**2) / (2 * sigma**2))
    taps = taps / taps.sum()
    angle = torch.deg2rad(degrees)
    right = torch.ceil(steps * torch.cos(angle)[:, None] - 0.5).long()
    down = torch.ceil(steps * torch.sin(angle)[:, None] - 0.5).long()
    height, length = x.shape[2:]
    out = torch.zeros_like(x)
    for i, weight in enumerate(taps.tolist()):
        rows = (torch.arange(height) + down[:, i, None]).clamp(0, height - 1)
        columns = (torch.arange(length) + right[:, i, None]).clamp(0, length - 1)
        out += weight * take(x, rows[:, :, None].expand(-1, -1, length), columns[:, None, :].expand(-1, height, -1))
    return out


def take(x: Images, rows: Int64[Tensor, "image h w"], columns: Int64[Tensor, "image h w"]) -> Images:
    """Pixels at these places, a different map for every image."""
    index = (rows * x.shape[3] + columns).flatten(1).to(x.device)
    picked = x.flatten(2).gather(2, index[:, None, :].expand(-1, x.shape[1], -1))
    return picked.reshape(*x.shape[:2], *rows.shape[1:])


def sample(x: Images, rows: Float64[Tensor, "image h w"], columns: Float64[Tensor, "image h w"], border: str) -> Images:
    """Bilinear values at any positions."""
    top, left = rows.floor().long(), columns.floor().long()
    down, right = (rows - top)[:, None], (columns - left)[:, None]
    value = torch.zeros_like(x)
    for i, weight_y in ((0, 1 - down), (1, down)):
        for j, weight_x in ((0, 1 - right), (1, right)):
            y = at_border(top + i, x.shape[2], border)
            value += weight_y * weight_x * take(x, y, at_border(left + j, x.shape[3], border))
    return value


def zoom_matrix(size: int, factor: float) -> Float64[Tensor, "size size"]:
    """Rows of `clipped_zoom`: the centre, ⌈size/factor⌉ wide, stretched linearly as scipy's `zoom` does."""
    crop = math.ceil(size / factor)
    top = (size - crop) // 2
    length = round(crop * factor)
    trim = (length - size) // 2
    matrix = torch.zeros(size, size, dtype=torch.float64)
    for row in range(size):
        at = (row + trim) * (crop - 1) / (length - 1)
        low = min(int(at), crop - 1)
        high = min(low + 1, crop - 1)
        matrix[row, top + low] += 1 - (at - low)
        matrix[row, top + high] += at - low
    return matrix


def zoom(x: Images, factor: float) -> Images:
    """The centre enlarged to the full size."""
    matrix = zoom_matrix(x.shape[2], factor).to(x)
    return matrix @ x @ matrix.T


def plasma(count: int, size: int, decay: float, rng: torch.Generator) -> Float64[Tensor, "image size size"]:
    """CIFAR-C's diamond-square height map in [0, 1], all images at once; its wibble enters squared there.

    Halving needs a power of two: a map of another size is cut from the next one, as ImageNet-C does.
    """
    side = 1 << (size - 1).bit_length()
    field = torch.zeros(count, side, side, dtype=torch.float64)
    step, wibble = side, 100.0

    def wibbled(total: Float[Tensor, "image h w"]) -> Tensor:
        noise = torch.rand(total.shape, generator=rng, dtype=torch.float64) * 2 - 1
        return total / 4 + wibble * wibble * noise

    while step >= 2:
        half = step // 2
        corners = field[:, ::step, ::step]
        total = corners + corners.roll(-1, 1)
        field[:, half::step, half::step] = wibbled(total + total.roll(-1, 2))
        centres, corners = field[:, half::step, half::step], field[:, ::step, ::step]
        across = centres + centres.roll(1, 1) + corners + corners.roll(-1, 2)
        down = centres + centres.roll(1, 2) + corners + corners.roll(-1, 1)
        field[:, ::step, half::step] = wibbled(across)
        field[:, half::step, ::step] = wibbled(down)
        step, wibble = half, wibble / decay
    field -= field.amin((1, 2), keepdim=True)
    return (field / field.amax((1, 2), keepdim=True))[:, :size, :size]


def uniform(rng: torch.Generator, low: float, high: float, *shape: int) -> Float64[Tensor, ...]:
    """Uniform draws in [low, high)."""
    return low + (high - low) * torch.rand(shape, generator=rng, dtype=torch.float64)


def zoom_factors(last: float) -> list[float]:
    """numpy's `arange(1, last, 0.01)`, whose rounding decides whether `last` is in."""
    return [float(f) for f in np.arange(1, last, 0.01)]
