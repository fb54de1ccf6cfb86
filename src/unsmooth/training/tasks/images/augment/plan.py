"""Every random draw of an epoch, made at once from (seed, epoch): a run can stop and go on anywhere."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from jaxtyping import Bool, Float32, Float64, Int64
from torch import Tensor

from unsmooth.training.tasks.images.augment.rand_augment import IDENTITY, OPERATIONS
from unsmooth.training.tasks.images.recipe import ImageRecipe

BatchPlan = dict[str, Tensor]


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

    def __len__(self) -> int:
        return len(self.lam)

    def rows(self) -> BatchPlan:
        """All tensors by name, each with a step a row."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

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
        per_image = {"index", "crop", "flip", "operation", "level", "negate", "bicubic"}
        return EpochPlan(**{k: v[:, rows] if k in per_image else v for k, v in self.rows().items()})


def draw_epoch(images: int, recipe: ImageRecipe, seed: int, epoch: int) -> EpochPlan:
    """The plan of one epoch: a permutation of the images (the last, smaller batch is dropped) and all draws."""
    steps, size, layers = images // recipe.batch_size, recipe.batch_size, recipe.rand_augment_layers
    rng = torch.Generator().manual_seed(1_000_003 * seed + epoch)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(shape, generator=rng, dtype=torch.float64)

    index = torch.randperm(images, generator=rng)[: steps * size].reshape(steps, size)
    offsets = torch.randint(0, 2 * recipe.crop_padding + 1, (steps, size, 2), generator=rng)
    operation = torch.randint(0, len(OPERATIONS), (steps, size, layers), generator=rng)
    skipped = uniform(steps, size, layers) > recipe.rand_augment_prob
    noise = torch.randn(steps, size, layers, generator=rng, dtype=torch.float64)
    lam, box = _mixing(steps, recipe, rng)
    return EpochPlan(
        index=index,
        crop=offsets,
        flip=(uniform(steps, size) < 0.5) & recipe.flip,
        operation=torch.where(skipped, IDENTITY, operation),
        level=(recipe.rand_augment_magnitude + recipe.rand_augment_std * noise).clamp(0, 10),
        negate=uniform(steps, size, layers) > 0.5,
        bicubic=uniform(steps, size, layers) > 0.5,
        lam=lam,
        box=box,
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
    return torch.where(cut, 1 - area / size**2, lam).to(torch.float32), box


def _beta(alpha: float, count: int, rng: torch.Generator) -> Float64[Tensor, count]:
    if alpha == 0:
        return torch.ones(count, dtype=torch.float64)
    shape = torch.full((2, count), alpha, dtype=torch.float64)
    draws = torch._standard_gamma(shape, generator=rng)
    return draws[0] / draws.sum(0)
