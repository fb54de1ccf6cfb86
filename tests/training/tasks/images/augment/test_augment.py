"""Crop, flip, Mixup and CutMix against torchvision's and timm's; plans that depend on seed and epoch alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unsmooth.training.tasks.images.augment import Colours, augment, draw_epoch, normalise
from unsmooth.training.tasks.images.augment.batch import crop_and_flip, mix_images, mix_targets
from unsmooth.training.tasks.images.augment.rand_augment import IDENTITY
from unsmooth.training.tasks.images.recipe import RECIPES, ImageRecipe

RECIPE = RECIPES["cifar100"].override(["batch_size=16"])


def test_crop_and_flip_equal_torchvisions() -> None:
    from torchvision.transforms import functional

    x = torch.randint(0, 256, (8, 3, 32, 32), dtype=torch.int32)
    crop, flip = torch.randint(0, 9, (8, 2)), torch.rand(8) > 0.5
    ours = crop_and_flip(x, {"crop": crop, "flip": flip}, padding=4)
    padded = functional.pad(x, [4], fill=0)
    for i, (top, left) in enumerate(crop.tolist()):
        theirs = functional.crop(padded[i], top, left, 32, 32)
        assert torch.equal(ours[i], functional.hflip(theirs) if flip[i] else theirs)


@pytest.mark.parametrize("cutmix", [False, True])
def test_mixing_equals_timms_with_the_same_draws(cutmix: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from timm.data import mixup

    recipe = RECIPE.override([f"cutmix_share={float(cutmix)}"])
    plan = draw_epoch(64, recipe, seed=3, epoch=1)
    x, labels = torch.randn(16, 3, 32, 32), torch.randint(0, 100, (16,))
    for step in range(len(plan)):
        draws = plan.batch(step)
        box = tuple(int(v) for v in draws["box"])
        timm = mixup.Mixup(1.0, 0.8, label_smoothing=0.1, num_classes=100)
        lam = float(draws["lam"])
        monkeypatch.setattr(timm, "_params_per_batch", lambda lam=lam: (lam, cutmix))
        monkeypatch.setattr(mixup, "rand_bbox", lambda *_a, box=box, **_k: box)
        theirs, target = timm(x.clone(), labels)
        torch.testing.assert_close(mix_images(x, draws), theirs)
        torch.testing.assert_close(mix_targets(labels, draws["lam"], recipe), target)


def test_cutmix_draws_follow_timms_distribution() -> None:
    from timm.data.mixup import Mixup, cutmix_bbox_and_lam

    recipe = RECIPES["cifar100"].override(["batch_size=2", "rand_augment_layers=0"])
    plan = draw_epoch(16_000, recipe, seed=0, epoch=0)
    cut = (plan.box[:, 1] > plan.box[:, 0]) & (plan.box[:, 3] > plan.box[:, 2])
    np.random.seed(0)  # noqa: NPY002 (timm draws from the global generator)
    timm = Mixup(1.0, 0.8)
    theirs = []
    for _ in range(8_000):
        lam, use = timm._params_per_batch()
        theirs.append((cutmix_bbox_and_lam((1, 3, 32, 32), lam)[1] if use else lam, use))
    values = np.array(theirs)
    assert abs(float(cut.double().mean()) - values[:, 1].mean()) < 0.06  # a box of no pixels counts as no cut
    ours = np.sort(plan.lam.numpy())
    assert (
        np.abs(
            np.quantile(ours, np.linspace(0.05, 0.95, 19)) - np.quantile(values[:, 0], np.linspace(0.05, 0.95, 19))
        ).max()
        < 0.04
    )


def test_targets_sum_to_one_and_hold_both_labels() -> None:
    labels = torch.tensor([0, 1, 2, 3])
    target = mix_targets(labels, torch.tensor(0.7), replace(RECIPE, classes=4))
    torch.testing.assert_close(target.sum(-1), torch.ones(4))
    assert target[0].argsort(descending=True)[:2].tolist() == [0, 3]


def test_a_plan_depends_on_seed_and_epoch_alone() -> None:
    a, b = (draw_epoch(100, RECIPE, seed=1, epoch=2) for _ in range(2))
    other = draw_epoch(100, RECIPE, seed=1, epoch=3)
    for name, drawn in a.rows().items():
        assert torch.equal(drawn, b.rows()[name])
    assert not torch.equal(a.index, other.index)


def test_an_epoch_sees_no_image_twice() -> None:
    plan = draw_epoch(100, RECIPE, seed=0, epoch=0)
    assert plan.index.shape == (6, 16)
    assert len(plan.index.unique()) == 96


def test_crops_lie_anywhere_in_the_padded_image_and_coins_are_fair() -> None:
    plan = draw_epoch(20_000, RECIPES["cifar100"], seed=0, epoch=0)
    shares = plan.crop.flatten().bincount(minlength=9) / plan.crop.numel()
    assert len(shares) == 9  # a padding of 4 on both sides leaves so many places
    assert (shares - 1 / 9).abs().max() < 0.01
    for coin in (plan.flip, plan.negate, plan.bicubic):
        assert abs(coin.double().mean() - 0.5) < 0.01


def test_cutmix_boxes_are_squares_about_any_pixel_cut_at_the_border() -> None:
    recipe = RECIPES["cifar100"].override(["batch_size=2", "rand_augment_layers=0", "cutmix_share=1"])
    plan = draw_epoch(16_000, recipe, seed=0, epoch=0)
    top, bottom, left, right = plan.box.unbind(-1)
    assert ((top >= 0) & (left >= 0) & (bottom <= 32) & (right <= 32)).all()
    inner = (top > 0) & (bottom < 32) & (left > 0) & (right < 32)
    assert torch.equal((bottom - top)[inner], (right - left)[inner])
    assert inner.double().mean() > 0.1
    for low, high in ((top, bottom), (left, right)):  # as often at one border as at the other
        assert abs((low == 0).double().mean() - (high == 32).double().mean()) < 0.03
        assert abs((low + high).double().mean() / 2 - 16) < 0.5
    assert plan.lam.unique().numel() > 100
    torch.testing.assert_close(plan.lam, 1 - ((bottom - top) * (right - left)).float() / 32**2)


def test_without_one_way_of_mixing_every_batch_is_mixed_the_other_way() -> None:
    blended = draw_epoch(1600, RECIPE.override(["cutmix=0"]), seed=0, epoch=0)
    assert not blended.box.any()
    assert (blended.lam < 1).all()
    cut = draw_epoch(1600, RECIPE.override(["mixup=0"]), seed=0, epoch=0)
    assert cut.box.any(-1).all()
    assert not draw_epoch(1600, RECIPE.override(["flip=no"]), seed=0, epoch=0).flip.any()


@given(st.sampled_from([1, 2, 4, 8]), st.integers(0, 5))
@settings(deadline=None, max_examples=20)
def test_shards_hold_each_image_once_beside_its_partner(world: int, step: int) -> None:
    plan = draw_epoch(100, RECIPE, seed=0, epoch=0)
    parts = [plan.shard(rank, world).batch(step) for rank in range(world)]
    whole = plan.batch(step)["index"].tolist()
    assert sorted(i for p in parts for i in p["index"].tolist()) == sorted(whole)
    for part in parts:
        own = part["index"].tolist()
        assert [whole[15 - whole.index(i)] for i in own] == own[::-1]


def test_a_plan_that_does_not_divide_is_refused() -> None:
    with pytest.raises(ValueError, match="does not divide among 3 processes"):
        draw_epoch(100, RECIPE, seed=0, epoch=0).shard(0, 3)


def test_without_any_draw_the_batch_is_the_normalised_image() -> None:
    recipe = RECIPE.override(["mixup=0", "cutmix=0", "flip=no", "rand_augment_prob=0", "label_smoothing=0"])
    pixels, labels = torch.randint(0, 256, (20, 3, 32, 32), dtype=torch.uint8), torch.arange(20)
    colours = Colours.of(recipe, "cpu")
    plan = draw_epoch(20, recipe, seed=0, epoch=0)
    assert (plan.operation == IDENTITY).all()
    draws = {**plan.batch(0), "crop": torch.full((16, 2), 4)}
    x, target = augment(pixels, labels, draws, recipe, colours)
    torch.testing.assert_close(x, normalise(pixels[draws["index"]], colours))
    assert torch.equal(target.argmax(-1), labels[draws["index"]])


def test_normalised_test_images_have_mean_zero_and_deviation_one() -> None:
    recipe = ImageRecipe("x", mean=(0.5, 0.25, 0.75), std=(0.1, 0.2, 0.05))
    pixels = (torch.randn(50, 3, 32, 32) * torch.tensor([0.1, 0.2, 0.05]).view(3, 1, 1)
              + torch.tensor([0.5, 0.25, 0.75]).view(3, 1, 1)).mul(255).round().int()  # fmt: skip
    x = normalise(pixels, Colours.of(recipe, "cpu"))
    assert x.mean((0, 2, 3)).abs().max() < 0.02
    assert (x.std((0, 2, 3)) - 1).abs().max() < 0.02
