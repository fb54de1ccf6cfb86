"""RandAugment with timm's operations and levels (`rand-m9-n2-mstd1.0`), each image its own operation."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float64, Int32, Int64
from torch import Tensor

from unsmooth.train.augment import affine, enhance, tables

# timm's `_RAND_TRANSFORMS`, in its order: the variants whose strength does not grow with the level (no `inc1`).
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


def apply_layer(
    x: Int32[Tensor, "batch channel height width"],
    operation: Int64[Tensor, batch],
    level: Float64[Tensor, batch],
    negate: Bool[Tensor, batch],
    bicubic: Bool[Tensor, batch],
    fill: Int32[Tensor, channel],
) -> Int32[Tensor, "batch channel height width"]:
    """One operation per image: `operation` indexes OPERATIONS, `level` is timm's magnitude in [0, 10].

    All kinds are computed for all images and chosen by `where`: nothing depends on the data's values,
    so the whole layer compiles into a few kernels of a fixed shape.
    """
    fraction = level / 10
    signed = torch.where(negate, -fraction, fraction)
    table = _table(x, operation, fraction)
    mapped = table.gather(2, x.flatten(2).to(torch.int64)).reshape(x.shape).to(torch.int32)
    warped = affine.warp(x, _matrix(operation, signed, x.shape[-1]), bicubic, fill)
    enhanced = enhance.blend(_degenerate(x, operation), x, (fraction * 1.8 + 0.1).to(torch.float32))
    is_warp = _among(operation, "Rotate", "ShearX", "ShearY", "TranslateXRel", "TranslateYRel")
    is_blend = _among(operation, "Color", "Contrast", "Brightness", "Sharpness")
    return torch.where(is_warp, warped, torch.where(is_blend, enhanced, mapped))


def _among(operation: Int64[Tensor, batch], *names: str) -> Bool[Tensor, "batch 1 1 1"]:
    hit = operation == Code[names[0]]
    for name in names[1:]:
        hit = hit | (operation == Code[name])
    return hit[:, None, None, None]


def _table(x: Tensor, operation: Tensor, fraction: Tensor) -> Int64[Tensor, "batch channel 256"]:
    """The table of the operations that have one; the identity for all others."""
    counts = tables.histogram(x)
    value = tables.levels(x.device)
    is_ = {name: (operation == Code[name])[:, None, None] for name in OPERATIONS}
    table = value.expand_as(counts)
    table = torch.where(is_["AutoContrast"], tables.autocontrast(counts), table)
    table = torch.where(is_["Equalize"], tables.equalize(counts), table)
    table = torch.where(is_["Invert"], 255 - value, table)
    posterized = tables.posterize((fraction * 4).to(torch.int64))
    table = torch.where(is_["Posterize"], posterized[:, None], table)
    solarized = tables.solarize((fraction * 256).to(torch.int64))
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
    luma = enhance.grey(x)
    base = torch.where(_among(operation, "Color"), luma, torch.zeros_like(x))
    base = torch.where(_among(operation, "Contrast"), enhance.mean_grey(luma), base)
    return torch.where(_among(operation, "Sharpness"), enhance.smoothed(x), base)
