"""Every operation of the batched RandAugment against timm's, which calls Pillow, image by image."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from unsmooth.training.tasks.images import RECIPES
from unsmooth.training.tasks.images.augment.plan import draw_epoch
from unsmooth.training.tasks.images.augment.rand_augment import IDENTITY, OPERATIONS, Code, Draws, apply_layer

FILL = (129, 124, 112)
IMAGES = 24


@pytest.fixture(scope="module")
def pixels() -> torch.Tensor:
    """Noise, smooth pictures, flat and nearly flat ones: the last two have their own branches in Pillow."""
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 256, (IMAGES // 3, 3, 32, 32))
    ramp = np.add.outer(np.arange(32) * 5, np.arange(32) * 2)[None, None] + rng.integers(0, 40, (IMAGES // 3, 3, 1, 1))
    flat = np.full((IMAGES // 3, 3, 32, 32), 77) + (rng.random((IMAGES // 3, 3, 32, 32)) < 0.01) * rng.integers(0, 9)
    return torch.from_numpy(np.concatenate([noise, np.broadcast_to(ramp, noise.shape), flat])).clamp(0, 255).int()


def timm_operation(image: torch.Tensor, name: str, level: float, negate: bool, bicubic: bool) -> np.ndarray:
    """The same operation by timm, its coin flip set by us."""
    from PIL import Image
    from timm.data import auto_augment

    picture = Image.fromarray(image.permute(1, 2, 0).numpy().astype(np.uint8))
    sign = -1.0 if negate else 1.0
    original = auto_augment._randomly_negate
    auto_augment._randomly_negate = lambda v: sign * v
    try:
        to_argument = auto_augment.LEVEL_TO_ARG[name]
        arguments = to_argument(level, {"translate_pct": 0.45}) if to_argument else ()
    finally:
        auto_augment._randomly_negate = original
    resample = Image.Resampling.BICUBIC if bicubic else Image.Resampling.BILINEAR
    out = auto_augment.NAME_TO_OP[name](picture, *arguments, fillcolor=FILL, resample=resample)
    return np.asarray(out).transpose(2, 0, 1)


INCREASING = ("Posterize", "Solarize", "Color", "Contrast", "Brightness", "Sharpness")


@pytest.mark.parametrize(
    ("name", "increasing"), [(name, False) for name in OPERATIONS] + [(name, True) for name in INCREASING]
)
def test_operation_equals_timms(name: str, increasing: bool, pixels: torch.Tensor) -> None:
    torch.manual_seed(1)
    level = torch.rand(IMAGES, dtype=torch.float64) * 10
    level[:3] = torch.tensor([10.0, 10.0, 0.0])  # mstd clips there
    if name == "Posterize":
        level = (
            level.clamp(max=9) if increasing else level.clamp(min=2.5)
        )  # beyond that timm asks for 0 bits, which Pillow no longer takes
    negate, bicubic = torch.rand(IMAGES) > 0.5, torch.rand(IMAGES) > 0.5
    operation = torch.full((IMAGES,), Code[name])
    draws = Draws(operation, level, negate, bicubic, increasing)
    ours = apply_layer(pixels, draws, torch.tensor(FILL, dtype=torch.int32)).numpy()
    theirs = np.stack(
        [
            timm_operation(p, name + "Increasing" * increasing, float(l), bool(n), bool(b))
            for p, l, n, b in zip(pixels, level, negate, bicubic, strict=True)
        ]
    )
    difference = np.abs(ours - theirs.astype(np.int32))
    assert difference.max() <= 1  # the last bit of a truncation
    assert (difference > 0).mean() < 2e-3


TORCHVISION = {
    "AutoContrast": lambda f, x, level: f.autocontrast(x),
    "Equalize": lambda f, x, level: f.equalize(x),
    "Invert": lambda f, x, level: f.invert(x),
    "Posterize": lambda f, x, level: f.posterize(x, int(level / 10 * 4)),
    "Solarize": lambda f, x, level: f.solarize(x, int(level / 10 * 256)),
    "Color": lambda f, x, level: f.adjust_saturation(x, level / 10 * 1.8 + 0.1),
    "Contrast": lambda f, x, level: f.adjust_contrast(x, level / 10 * 1.8 + 0.1),
    "Brightness": lambda f, x, level: f.adjust_brightness(x, level / 10 * 1.8 + 0.1),
    "Sharpness": lambda f, x, level: f.adjust_sharpness(x, level / 10 * 1.8 + 0.1),
    "Rotate": lambda f, x, level: f.rotate(x, 3 * level, f.InterpolationMode.BILINEAR, fill=FILL),
}


@pytest.mark.parametrize("name", TORCHVISION)
def test_operation_equals_torchvisions_on_pillow_images(name: str, pixels: torch.Tensor) -> None:
    """The operations that torchvision has too; it warps by other matrices (about the centre), so not the shears."""
    from PIL import Image
    from torchvision.transforms import functional

    level = torch.linspace(2.5, 10, IMAGES, dtype=torch.float64)
    no = torch.zeros(IMAGES, dtype=torch.bool)
    draws = Draws(torch.full((IMAGES,), Code[name]), level, no, no)
    ours = apply_layer(pixels, draws, torch.tensor(FILL, dtype=torch.int32)).numpy()
    for image, at, found in zip(pixels, level.tolist(), ours, strict=True):
        picture = Image.fromarray(image.permute(1, 2, 0).numpy().astype(np.uint8))
        theirs = np.asarray(TORCHVISION[name](functional, picture, at)).transpose(2, 0, 1)
        difference = np.abs(found - theirs.astype(np.int32))
        assert difference.max() <= 1
        assert (difference > 0).mean() < 5e-3


def test_each_image_gets_its_own_operation(pixels: torch.Tensor) -> None:
    operation = torch.arange(IMAGES) % (len(OPERATIONS) + 1)
    level = torch.full((IMAGES,), 9.0, dtype=torch.float64)
    no = torch.zeros(IMAGES, dtype=torch.bool)

    def run(images: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
        return apply_layer(images, Draws(codes, level, no, no), torch.tensor(FILL, dtype=torch.int32))

    mixed = run(pixels, operation)
    for image, code in enumerate(operation.tolist()):
        alone = run(pixels, torch.full((IMAGES,), code))
        assert torch.equal(mixed[image], alone[image])
        if code == IDENTITY:
            assert torch.equal(mixed[image], pixels[image])


def test_levels_and_shares_of_the_draws_are_timms() -> None:
    plan = draw_epoch(20_000, RECIPES["cifar100"], seed=0, epoch=0)
    applied = plan.operation != IDENTITY
    assert abs(applied.double().mean() - 0.5) < 0.01
    shares = plan.operation[applied].bincount(minlength=15) / applied.sum()
    assert (shares - 1 / 15).abs().max() < 0.01
    noise = torch.randn(100_000).add(9).clamp(0, 10)
    assert abs(plan.level.mean() - noise.mean()) < 0.02
    assert plan.level.max() == 10
