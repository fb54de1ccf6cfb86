"""From a plan's row to the batch a model sees: crop, flip, RandAugment, normalise, erase, mix."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int32, Int64, UInt8
from torch import Tensor

from unsmooth.training.tasks.images.augment.plan import BatchPlan
from unsmooth.training.tasks.images.augment.rand_augment import Draws, apply_layer
from unsmooth.training.tasks.images.augment.rectangles import erase, resized_crop
from unsmooth.training.tasks.images.recipe import ImageRecipe


@dataclass(frozen=True)
class Colours:
    """The data's colour statistics and noise, on the device: a captured step must not copy them from the host."""

    mean: Float[Tensor, "channel 1 1"]
    std: Float[Tensor, "channel 1 1"]
    fill: Int32[Tensor, channel]  # what is left bare by a warp: the mean colour, as in timm's transforms
    noise: Float[Tensor, "channel y x"]  # what is erased gets a window of it

    @classmethod
    def of(cls, recipe: ImageRecipe, device: torch.device | str) -> Colours:
        """The recipe's statistics on a device."""
        mean, std = (torch.tensor(v, device=device)[:, None, None] for v in (recipe.mean, recipe.std))
        fill = [min(255, round(255 * m)) for m in recipe.mean]
        side = 2 * recipe.image_size if recipe.erase_prob else 0
        noise = torch.randn(3, side, side, generator=torch.Generator().manual_seed(0))
        return cls(mean, std, torch.tensor(fill, dtype=torch.int32, device=device), noise.to(device))


def augment(
    pixels: UInt8[Tensor, "image channel height width"],
    labels: Int64[Tensor, image],
    plan: BatchPlan,
    recipe: ImageRecipe,
    colours: Colours,
) -> tuple[Float[Tensor, "batch channel height width"], Float[Tensor, "batch classes"]]:
    """The normalised, mixed batch of one step and its soft targets."""
    x = pixels.index_select(0, plan["index"]).to(torch.int32)
    cropped = (
        resized_crop(x, plan["part"], plan["flip"]) if "part" in plan else crop_and_flip(x, plan, recipe.crop_padding)
    )
    return colour_and_mix(cropped, labels.index_select(0, plan["index"]), plan, recipe, colours)


def colour_and_mix(
    x: Int32[Tensor, "batch channel height width"],
    labels: Int64[Tensor, batch],
    plan: BatchPlan,
    recipe: ImageRecipe,
    colours: Colours,
) -> tuple[Float[Tensor, "batch channel height width"], Float[Tensor, "batch classes"]]:
    """What follows the crop: RandAugment, normalisation, random erasing, Mixup or CutMix."""
    for layer in range(recipe.rand_augment_layers):
        operation, level, negate, bicubic = (plan[k][:, layer] for k in ("operation", "level", "negate", "bicubic"))
        draws = Draws(operation, level, negate, bicubic, recipe.rand_augment_increasing)
        x = apply_layer(x, draws, colours.fill)
    normal = normalise(x, colours)
    if "erased" in plan:
        normal = erase(normal, plan["erased"], colours.noise)
    return mix_images(normal, plan), mix_targets(labels, plan["lam"], recipe)


def crop_and_flip(
    x: Int32[Tensor, "batch channel height width"], plan: BatchPlan, padding: int
) -> Int32[Tensor, "batch channel height width"]:
    """A crop of the zero-padded image, then a mirror image where the plan says so; one gather."""
    batch, channels, height, width = x.shape
    rows = torch.arange(height, device=x.device) + plan["crop"][:, 0, None] - padding
    columns = torch.arange(width, device=x.device).expand(batch, width)
    columns = torch.where(plan["flip"][:, None], width - 1 - columns, columns) + plan["crop"][:, 1, None] - padding
    inside = ((rows >= 0) & (rows < height))[:, :, None] & ((columns >= 0) & (columns < width))[:, None, :]
    where = rows.clamp(0, height - 1)[:, :, None] * width + columns.clamp(0, width - 1)[:, None, :]
    index = where.reshape(batch, 1, -1).expand(-1, channels, -1)
    return torch.where(inside[:, None], x.flatten(2).gather(2, index).reshape(x.shape), 0)


def normalise(
    x: Int32[Tensor, "batch channel height width"] | UInt8[Tensor, "batch channel height width"], colours: Colours
) -> Float[Tensor, "batch channel height width"]:
    """Subtract the data's mean, divide by its standard deviation."""
    return (x.to(torch.float32) / 255 - colours.mean) / colours.std


def mix_images(
    x: Float[Tensor, "batch channel height width"], plan: BatchPlan
) -> Float[Tensor, "batch channel height width"]:
    """Image i with image n−1−i: a patch of it (CutMix) where the box is not empty, a blend (Mixup) else."""
    top, bottom, left, right = plan["box"].unbind(-1)
    ys = torch.arange(x.shape[2], device=x.device)[:, None]
    xs = torch.arange(x.shape[3], device=x.device)[None, :]
    patch = (ys >= top) & (ys < bottom) & (xs >= left) & (xs < right)
    other = x.flip(0)
    cut = bottom > 0  # a CutMix box is at least one pixel away from the top-left corner, Mixup's is all zero
    blended = x * plan["lam"] + other * (1 - plan["lam"])
    return torch.where(cut, torch.where(patch, other, x), blended)


def mix_targets(
    labels: Int64[Tensor, batch], lam: Float[Tensor, ""], recipe: ImageRecipe
) -> Float[Tensor, "batch classes"]:
    """Smoothed one-hot labels, mixed as the images are."""
    off = recipe.label_smoothing / recipe.classes
    one_hot = (labels[:, None] == torch.arange(recipe.classes, device=labels.device)).to(torch.float32)
    smooth = one_hot * (1 - recipe.label_smoothing) + off
    return smooth * lam + smooth.flip(0) * (1 - lam)
