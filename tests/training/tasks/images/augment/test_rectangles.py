"""Resized crops and random erasing against torchvision's and timm's; repeats and batches that are not mixed."""

from __future__ import annotations

import numpy as np
import torch

from unsmooth.training.tasks.images.augment import Colours, augment, draw_epoch
from unsmooth.training.tasks.images.augment.rectangles import draw_crops, draw_erased, erase, resized_crop
from unsmooth.training.tasks.images.recipe import RECIPES

SIZE, QUANTILES = 64, np.linspace(0.1, 0.9, 9)
RECIPE = RECIPES["tiny-imagenet"].override(["batch_size=16"])


def rng() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_resized_crops_equal_torchvisions_of_pillow() -> None:
    from PIL import Image
    from torchvision.transforms import InterpolationMode, functional

    noise = torch.randint(0, 256, (12, 3, SIZE, SIZE), dtype=torch.int32, generator=rng())
    where, flip = draw_crops((12,), 0.08, SIZE, rng()), torch.arange(12) % 2 == 0
    ours = resized_crop(noise, where, flip)
    for i, box in enumerate(where.tolist()):
        picture = Image.fromarray(noise[i].permute(1, 2, 0).numpy().astype(np.uint8))
        theirs = functional.resized_crop(picture, *box, [SIZE, SIZE], InterpolationMode.BICUBIC)
        theirs = functional.hflip(theirs) if flip[i] else theirs
        difference = (ours[i].permute(1, 2, 0) - torch.from_numpy(np.array(theirs)).int()).abs()
        assert difference.max() <= 1  # Pillow rounds its weights to 22 bits
        assert (difference > 0).double().mean() < 0.01


def test_crops_follow_torchvisions_distribution() -> None:
    from torchvision.transforms import RandomResizedCrop

    torch.manual_seed(0)
    image = torch.zeros(3, SIZE, SIZE)
    theirs = np.array([RandomResizedCrop.get_params(image, [0.08, 1.0], [3 / 4, 4 / 3]) for _ in range(4000)])
    ours = draw_crops((4000,), 0.08, SIZE, rng()).numpy()
    for column in range(4):
        gap = np.quantile(ours[:, column], QUANTILES) - np.quantile(theirs[:, column], QUANTILES)
        assert np.abs(gap).max() <= 3, column  # px of 64
    assert (ours[:, :2] + ours[:, 2:] <= SIZE).all()


def test_erased_rectangles_follow_timms_and_hold_normal_noise() -> None:
    import random

    from timm.data.random_erasing import RandomErasing

    random.seed(0)
    tool = RandomErasing(1.0, mode="const", device="cpu")
    theirs = []
    for _ in range(2000):
        hole = tool(torch.ones(3, SIZE, SIZE))[0] == 0
        theirs.append((int(hole.any(1).sum()), int(hole.any(0).sum()), int(hole.any(1).int().argmax())))
    drawn = draw_erased((8000,), 0.25, SIZE, rng())
    hit = drawn[:, 2] > 0
    assert abs(float(hit.double().mean()) - 0.25) < 0.03
    ours = drawn[hit][:, [2, 3, 0]].numpy()
    for column in range(3):
        gap = np.quantile(ours[:, column], QUANTILES) - np.quantile(np.array(theirs)[:, column], QUANTILES)
        assert np.abs(gap).max() <= 4, column
    noise = torch.randn(3, 2 * SIZE, 2 * SIZE, generator=rng())
    x = erase(torch.full((400, 3, SIZE, SIZE), 9.0), drawn[:400], noise)
    for image, (top, left, height, width, down, right) in zip(x, drawn[:400].tolist(), strict=True):
        assert int((image[0] != 9).sum()) == height * width
        rows, columns = slice(top, top + height), slice(left, left + width)
        inside = noise[:, down : down + SIZE, right : right + SIZE][:, rows, columns]
        assert torch.equal(image[:, rows, columns], inside)


def test_the_recipe_mixes_half_of_its_batches_and_erases_a_quarter() -> None:
    plan = draw_epoch(4000, RECIPE.override(["batch_size=4"]), seed=0, epoch=0)
    assert abs(float((plan.lam < 1).double().mean()) - 0.5) < 0.06
    assert (plan.lam[~plan.box.any(-1)] > 0).all()
    assert plan.erased is not None
    assert abs(float((plan.erased[..., 2] > 0).double().mean()) - 0.25) < 0.03
    assert plan.bicubic.all()
    pixels = torch.randint(0, 256, (32, 3, SIZE, SIZE), dtype=torch.uint8)
    batch = draw_epoch(32, RECIPE, seed=0, epoch=0).batch(0)
    x, target = augment(pixels, torch.arange(32), batch, RECIPE, Colours.of(RECIPE, "cpu"))
    assert x.isfinite().all()
    torch.testing.assert_close(target.sum(-1), torch.ones(16))


def test_repeated_images_stand_beside_each_other_and_fewer_are_seen() -> None:
    plan = draw_epoch(96, RECIPE.override(["repeats=3"]), seed=0, epoch=0)
    assert plan.index.shape == (6, 16)
    assert plan.index.flatten().bincount().max() == 3
    assert len(plan.index.unique()) == 32
    first = plan.index[0, :3].tolist()
    assert len(set(first)) == 1
    assert plan.part is not None
    assert not torch.equal(plan.part[0, 0], plan.part[0, 1])
