"""Every random draw of an epoch, made at once from (seed, epoch): a run can stop and go on anywhere."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from jaxtyping import Bool, Float32, Float64, Int64
from torch import Tensor

from unsmooth.training.tasks.images.augment.rand_augment import IDENTITY, OPERATIONS
from unsmooth.training.tasks.images.augment.rectangles import draw_crops, draw_erased
from unsmooth.training.tasks.images.recipe import ImageRecipe

BatchPlan = dict[str, Tensor]
PER_BATCH = ("lam", "box")


@dataclass(frozen=True)
class EpochPlan:
    """Draws for all steps of one epoch, batch by batch; the step slices row `step` of each."""

    index: Int64[Tensor, "step batch"]
    crop: Int64[Tensor, "step batch 2"]
    flip: Bool[Tensor, "step batch"]
    operation: Int64[Tensor, "step batch layer"]
    level: Float64[Tensor, "step batch layer"]
    negate: Bool[Tensor, "step batch layer"]
    bicubic: Bool[Tensor, "step batch layer"]
    lam: Float32[Tensor, step]
    box: Int64[Tensor, "step 4"]  # top, bottom, left, right of CutMix; empty for Mixup
    part: Int64[Tensor, "step batch 4"] | None = None  # top, left, height, width of a resized crop
    erased: Int64[Tensor, "step batch 6"] | None = None  # the same of what is erased, and where its noise begins

    def __len__(self) -> int:
        return len(self.lam)

    def rows(self) -> BatchPlan:
        """All tensors by name, each with a step a row."""
        found = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: t for name, t in found.items() if t is not None}

    def batch(self, step: int) -> BatchPlan:
        """The draws of one step."""
        return {name: t[step] for name, t in self.rows().items()}

    def shard(self, rank: int, world: int) -> EpochPlan:
        """The rows of one process; image i and its mixing partner, n−1−i, stay together."""
        half = self.index.shape[1] // 2
        if half % world:
            raise ValueError(f"half the batch ({half}) does not divide among {world} processes")
        mine = torch.arange(rank * half // world, (rank + 1) * half // world)
        rows = torch.cat([mine, (2 * half - 1 - mine).flip(0)])
        return EpochPlan(**{k: v if k in PER_BATCH else v[:, rows] for k, v in self.rows().items()})


def draw_epoch(images: int, recipe: ImageRecipe, seed: int, epoch: int) -> EpochPlan:
    """The plan of one epoch: a permutation of the images (the last, smaller batch is dropped) and all draws.

    With repeats, as many steps see fewer images.
    """
    steps, size = images // recipe.batch_size, recipe.batch_size
    rng = torch.Generator().manual_seed(1_000_003 * seed + epoch)
    chosen = torch.randperm(images, generator=rng)
    if recipe.repeats > 1:
        chosen = chosen.repeat_interleave(recipe.repeats)
    return draw_steps(chosen[: steps * size].reshape(steps, size), recipe, rng)


def draw_steps(index: Int64[Tensor, "step batch"], recipe: ImageRecipe, rng: torch.Generator) -> EpochPlan:
    """All draws of the steps that see these images."""
    (steps, size), layers = index.shape, recipe.rand_augment_layers

    def uniform(*shape: int) -> Tensor:
        return torch.rand(shape, generator=rng, dtype=torch.float64)

    offsets = torch.randint(0, 2 * recipe.crop_padding + 1, (steps, size, 2), generator=rng)
    operation = torch.randint(0, len(OPERATIONS), (steps, size, layers), generator=rng)
    skipped = uniform(steps, size, layers) > recipe.rand_augment_prob
    noise = torch.randn(steps, size, layers, generator=rng, dtype=torch.float64)
    lam, box = _mixing(steps, recipe, rng)
    crops = recipe.crop_area and not recipe.stream  # a stream's images are cropped where they are decoded
    return EpochPlan(
        index=index,
        crop=offsets,
        flip=(uniform(steps, size) < 0.5) & recipe.flip,
        operation=torch.where(skipped, IDENTITY, operation),
        level=(recipe.rand_augment_magnitude + recipe.rand_augment_std * noise).clamp(0, 10),
        negate=uniform(steps, size, layers) > 0.5,
        bicubic=(uniform(steps, size, layers) > 0.5) | recipe.rand_augment_bicubic,
        lam=lam,
        box=box,
        part=draw_crops((steps, size), recipe.crop_area, recipe.image_size, rng) if crops else None,
        erased=draw_erased((steps, size), recipe.erase_prob, recipe.image_size, rng) if recipe.erase_prob else None,
    )


def _mixing(steps: int, recipe: ImageRecipe, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """timm's Mixup in batch mode: λ ~ Beta(α, α), half the batches cut, λ corrected to the box's true area."""
    cut = torch.rand(steps, generator=rng) < recipe.cutmix_share
    cut = (cut | (recipe.mixup == 0)) & (recipe.cutmix > 0)
    lam = torch.where(cut, _beta(recipe.cutmix, steps, rng), _beta(recipe.mixup, steps, rng))
    size = recipe.image_size
    side = (size * (1 - lam).sqrt()).to(torch.int64)
    centre = torch.randint(0, size, (steps, 2), generator=rng)
    low = (centre - side[:, None] // 2).clamp(0, size)
    high = (centre + (side[:, None] + 1) // 2).clamp(0, size)
    box = torch.stack([low[:, 0], high[:, 0], low[:, 1], high[:, 1]], -1) * cut[:, None]
    area = (box[:, 1] - box[:, 0]) * (box[:, 3] - box[:, 2])
    lam = torch.where(cut, 1 - area / size**2, lam).to(torch.float32)
    if recipe.mix_prob < 1:
        mixed = torch.rand(steps, generator=rng) < recipe.mix_prob
        lam, box = torch.where(mixed, lam, 1.0), box * mixed[:, None]
    return lam, box


def _beta(alpha: float, count: int, rng: torch.Generator) -> Float64[Tensor, count]:
    if alpha == 0:
        return torch.ones(count, dtype=torch.float64)
    shape = torch.full((2, count), alpha, dtype=torch.float64)
    draws = torch._standard_gamma(shape, generator=rng)
    return draws[0] / draws.sum(0)
