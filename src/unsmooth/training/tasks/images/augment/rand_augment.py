"""RandAugment with timm's operations and levels (`rand-m9-n2-mstd1.0`, also `inc1`), each image its own operation."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float64, Int32, Int64
from torch import Tensor

from unsmooth.training.tasks.images.augment import affine, enhance, tables

# timm's `_RAND_TRANSFORMS`, in its order. Four of them, and posterising and solarising, have a second variant, whose
# strength grows with the level (`inc1`).
OPERATIONS = (
    "AutoContrast",
    "Equalize",
    "Invert",
    "Rotate",
    "Posterize",
    "Solarize",
    "SolarizeAdd",
    "Color",
    "Contrast",
    "Brightness",
    "Sharpness",
    "ShearX",
    "ShearY",
    "TranslateXRel",
    "TranslateYRel",
)
IDENTITY = len(OPERATIONS)  # drawn when an operation is skipped
Code = {name: number for number, name in enumerate(OPERATIONS)}
TABLED = ("AutoContrast", "Equalize", "Invert", "Posterize", "Solarize", "SolarizeAdd")
WARPS = ("Rotate", "ShearX", "ShearY", "TranslateXRel", "TranslateYRel")
BLENDS = ("Color", "Contrast", "Brightness", "Sharpness")
Pixels = Int32[Tensor, "batch channel height width"]


@dataclass(frozen=True)
class Draws:
    """What is drawn for each image of a batch in one layer."""

    operation: Int64[Tensor, batch]  # an index into OPERATIONS, or IDENTITY
    level: Float64[Tensor, batch]  # timm's magnitude in [0, 10]
    negate: Bool[Tensor, batch]
    bicubic: Bool[Tensor, batch]
    increasing: bool = False

    def take(self, index: Int64[Tensor, chosen]) -> Draws:
        """The draws of these images."""
        operation, level, negate, bicubic = (t[index] for t in (self.operation, self.level, self.negate, self.bicubic))
        return Draws(operation, level, negate, bicubic, self.increasing)


def apply_layer(x: Pixels, draws: Draws, fill: Int32[Tensor, channel]) -> Pixels:
    """One operation per image.

    On a GPU all kinds are computed for all images and chosen by `where`: nothing depends on the data's
    values, so the layer compiles into a few kernels of a fixed shape. A CPU computes what is needed.
    """
    kinds = (
        (_among(draws.operation, *TABLED), lambda p, d: _map(p, d)),
        (_among(draws.operation, *WARPS), lambda p, d: _warp(p, d, fill)),
        (_among(draws.operation, *BLENDS), lambda p, d: _blend(p, d)),
    )
    out = x
    for chosen, change in kinds:
        if x.device.type == "cpu" and not torch.compiler.is_compiling():
            index = chosen.nonzero()[:, 0]
            out = out.index_copy(0, index, change(x[index], draws.take(index))) if len(index) else out
        else:
            out = torch.where(chosen[:, None, None, None], change(x, draws), out)
    return out


def _among(operation: Int64[Tensor, batch], *names: str) -> Bool[Tensor, batch]:
    hit = operation == Code[names[0]]
    for name in names[1:]:
        hit = hit | (operation == Code[name])
    return hit


def _map(x: Pixels, draws: Draws) -> Pixels:
    table = _table(x, draws.operation, draws.level / 10, draws.increasing)
    return table.gather(2, x.flatten(2).to(torch.int64)).reshape(x.shape).to(torch.int32)


def _warp(x: Pixels, draws: Draws, fill: Int32[Tensor, channel]) -> Pixels:
    fraction = draws.level / 10
    signed = torch.where(draws.negate, -fraction, fraction)
    return affine.warp(x, _matrix(draws.operation, signed, x.shape[-1]), draws.bicubic, fill)


def _blend(x: Pixels, draws: Draws) -> Pixels:
    factor = draws.level / 10 * 1.8 + 0.1
    if draws.increasing:
        away = draws.level / 10 * 0.9
        factor = (1 + torch.where(draws.negate, -away, away)).clamp(min=0.1)
    return enhance.blend(_degenerate(x, draws.operation), x, factor.to(torch.float32))


def _table(x: Tensor, operation: Tensor, fraction: Tensor, increasing: bool) -> Int64[Tensor, "batch channel 256"]:
    """The table of the operations that have one; the identity for all others."""
    counts = tables.histogram(x)
    value = tables.levels(x.device)
    is_ = {name: (operation == Code[name])[:, None, None] for name in OPERATIONS}
    table = value.expand_as(counts)
    table = torch.where(is_["AutoContrast"], tables.autocontrast(counts), table)
    table = torch.where(is_["Equalize"], tables.equalize(counts), table)
    table = torch.where(is_["Invert"], 255 - value, table)
    bits, threshold = (fraction * 4).to(torch.int64), (fraction * 256).to(torch.int64)
    posterized = tables.posterize(4 - bits if increasing else bits)
    table = torch.where(is_["Posterize"], posterized[:, None], table)
    solarized = tables.solarize(256 - threshold if increasing else threshold)
    table = torch.where(is_["Solarize"], solarized[:, None], table)
    added = tables.solarize_add((fraction * 110).to(torch.int64))
    return torch.where(is_["SolarizeAdd"], added[:, None], table)


def _matrix(operation: Tensor, signed: Tensor, size: int) -> Float64[Tensor, "batch 6"]:
    """Output-to-input maps; the identity where the operation is not geometric."""
    one, zero = torch.ones_like(signed), torch.zeros_like(signed)
    shear, shift = 0.3 * signed, 0.45 * signed * size
    is_ = {name: operation == Code[name] for name in OPERATIONS}
    plain = torch.stack(
        [
            one,
            torch.where(is_["ShearX"], shear, zero),
            torch.where(is_["TranslateXRel"], shift, zero),
            torch.where(is_["ShearY"], shear, zero),
            one,
            torch.where(is_["TranslateYRel"], shift, zero),
        ],
        -1,
    )
    return torch.where(is_["Rotate"][:, None], affine.rotation(30 * signed, size), plain)


def _degenerate(x: Tensor, operation: Tensor) -> Tensor:
    is_ = {name: (operation == Code[name])[:, None, None, None] for name in BLENDS}
    luma = enhance.grey(x)
    base = torch.where(is_["Color"], luma, torch.zeros_like(x))
    base = torch.where(is_["Contrast"], enhance.mean_grey(luma), base)
    return torch.where(is_["Sharpness"], enhance.smoothed(x), base)
