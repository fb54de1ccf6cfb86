"""Regenerated CIFAR-100-C against slow, obvious twins made with scipy and Pillow, after CIFAR-C's definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import ndimage

from unsmooth.errors import OptionError
from unsmooth.training.tasks.images.corruptions import CORRUPTIONS, SEVERITIES, corrupt, corrupt_all
from unsmooth.training.tasks.images.corruptions.blur import disk
from unsmooth.training.tasks.images.corruptions.constants import CONSTANTS
from unsmooth.training.tasks.images.corruptions.filters import (
    correlate,
    gaussian,
    motion_blur,
    plasma,
    sample,
    zoom,
    zoom_factors,
)


@pytest.fixture(scope="module")
def pixels() -> torch.Tensor:
    """Smooth shapes with edges, so that blurs and noise both show."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:32, :32]
    images = []
    for _ in range(12):
        a, b, c = rng.uniform(0.1, 0.6, 3)
        base = 127 + 90 * np.sin(a * x + b * y) + 60 * ((x - 16) ** 2 + (y - 16) ** 2 < 400 * c)
        images.append(np.stack([base, base * rng.uniform(0.4, 1), base * rng.uniform(0.4, 1)]))
    return torch.from_numpy(np.clip(np.stack(images), 0, 255).astype(np.uint8))


def unit(pixels: torch.Tensor) -> torch.Tensor:
    return pixels.double() / 255


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_a_corruption_repeats_from_its_seed_and_grows(name: str, pixels: torch.Tensor) -> None:
    found = [corrupt(pixels, name, severity, seed=1) for severity in SEVERITIES]
    assert all(torch.equal(a, corrupt(pixels, name, s, seed=1)) for s, a in zip(SEVERITIES, found, strict=True))
    change = [float((a.double() - pixels.double()).abs().mean()) for a in found]
    assert min(change) > 0.3
    if name not in ("elastic_transform", "frost"):  # CIFAR-C's own constants are not monotone there
        assert change[4] > change[0]
    assert found[0].dtype == torch.uint8
    assert found[0].shape == pixels.shape


@pytest.mark.parametrize("name", ["gaussian_noise", "glass_blur", "motion_blur", "snow", "fog", "elastic_transform"])
def test_another_seed_gives_other_images(name: str, pixels: torch.Tensor) -> None:
    assert not torch.equal(corrupt(pixels, name, 3, seed=0), corrupt(pixels, name, 3, seed=1))


def test_unknown_names_and_severities_list_the_valid_ones(pixels: torch.Tensor) -> None:
    with pytest.raises(OptionError, match=r"unknown corruption 'rain'.*'gaussian_noise'.*'jpeg_compression'"):
        corrupt(pixels, "rain", 1)
    with pytest.raises(OptionError, match=r"unknown severity 6: expected one of 1, 2, 3, 4, 5"):
        corrupt(pixels, "fog", 6)


def test_the_constants_are_cifar_cs() -> None:
    """`make_cifar_c.py`, all 15 × 5; lengths of the elastic transform there are times 32."""
    assert dict(CONSTANTS) == {
        "gaussian_noise": (0.04, 0.06, 0.08, 0.09, 0.10),
        "shot_noise": (500, 250, 100, 75, 50),
        "impulse_noise": (0.01, 0.02, 0.03, 0.05, 0.07),
        "defocus_blur": ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
        "glass_blur": ((0.05, 1), (0.25, 1), (0.4, 1), (0.25, 2), (0.4, 2)),
        "motion_blur": ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
        "zoom_blur": (1.06, 1.11, 1.16, 1.21, 1.26),
        "snow": (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
        "frost": ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
        "fog": ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
        "brightness": (0.05, 0.1, 0.15, 0.2, 0.3),
        "contrast": (0.75, 0.5, 0.4, 0.3, 0.15),
        "elastic_transform": (
            (0, 0, 0.08),
            (0.05, 0.2, 0.07),
            (0.08, 0.06, 0.06),
            (0.1, 0.04, 0.05),
            (0.1, 0.03, 0.03),
        ),
        "pixelate": (0.95, 0.9, 0.85, 0.75, 0.65),
        "jpeg_compression": (80, 65, 58, 50, 40),
    }
    assert set(CONSTANTS) == set(CORRUPTIONS)


def test_noise_has_cifar_cs_strength() -> None:
    grey = torch.full((64, 3, 32, 32), 128, dtype=torch.uint8)
    for severity, sigma in zip(SEVERITIES, (0.04, 0.06, 0.08, 0.09, 0.10), strict=True):
        noise = corrupt(grey, "gaussian_noise", severity).double()
        assert noise.std() / 255 == pytest.approx(sigma, rel=0.02)
    for severity, photons in zip(SEVERITIES, (500, 250, 100, 75, 50), strict=True):
        shot = corrupt(grey, "shot_noise", severity).double() / 255
        assert float(shot.var()) == pytest.approx(128 / 255 / photons, rel=0.05)
    for severity, amount in zip(SEVERITIES, (0.01, 0.02, 0.03, 0.05, 0.07), strict=True):
        impulse = corrupt(grey, "impulse_noise", severity)
        assert float((impulse != 128).double().mean()) == pytest.approx(amount, rel=0.1)
        assert set(impulse.unique().tolist()) == {0, 128, 255}


@pytest.mark.parametrize(
    ("sigma", "truncate", "border"), [(0.25, 4, "nearest"), (0.4, 4, "nearest"), (6.4, 3, "reflect")]
)
def test_the_gaussian_is_scipys(pixels: torch.Tensor, sigma: float, truncate: float, border: str) -> None:
    ours = gaussian(unit(pixels[:2]), sigma, truncate, border)
    theirs = ndimage.gaussian_filter(unit(pixels[:2]).numpy(), (0, 0, sigma, sigma), truncate=truncate, mode=border)
    np.testing.assert_allclose(ours.numpy(), theirs, atol=1e-12)


def test_correlation_mirrors_the_border_as_opencv_does(pixels: torch.Tensor) -> None:
    kernel = torch.rand(5, 5, dtype=torch.float64)
    theirs = ndimage.correlate(unit(pixels[:1])[0, 0].numpy(), kernel.numpy(), mode="mirror")
    np.testing.assert_allclose(correlate(unit(pixels[:1]), kernel)[0, 0].numpy(), theirs, atol=1e-12)


def test_the_disk_is_normalised_and_round() -> None:
    for radius, alias in ((0.3, 0.4), (1, 0.2), (1.5, 0.1)):
        kernel = disk(radius, alias)
        assert float(kernel.sum()) == pytest.approx(1)
        torch.testing.assert_close(kernel, kernel.T)
        torch.testing.assert_close(kernel, kernel.flip(0))
    assert int((disk(1, 0.01) > 0.1).sum()) == 5  # the centre and its four neighbours


@pytest.mark.parametrize("factor", [1.0, 1.01, 1.06, 1.13, 1.25, 1.75, 2.25])
def test_zoom_is_scipys_clipped_zoom(pixels: torch.Tensor, factor: float) -> None:
    image = unit(pixels[:1])[0].numpy().transpose(1, 2, 0)
    crop = math.ceil(32 / factor)
    top = (32 - crop) // 2
    larger = ndimage.zoom(image[top : top + crop, top : top + crop], (factor, factor, 1), order=1)
    trim = (larger.shape[0] - 32) // 2
    theirs = larger[trim : trim + 32, trim : trim + 32].transpose(2, 0, 1)
    np.testing.assert_allclose(zoom(unit(pixels[:1]), factor)[0].numpy(), theirs, atol=1e-9)


def test_zoom_factors_are_numpys_with_their_rounding() -> None:
    assert [len(zoom_factors(last)) for last in (1.06, 1.11, 1.16, 1.21, 1.26)] == [
        len(np.arange(1, last, 0.01)) for last in (1.06, 1.11, 1.16, 1.21, 1.26)
    ]


def test_sampling_equals_scipys_map_coordinates(pixels: torch.Tensor) -> None:
    rng = np.random.default_rng(0)
    rows, columns = rng.uniform(-6, 38, (2, 1, 32, 32))
    for border, mode in (("reflect", "reflect"), ("reflect101", "mirror"), ("nearest", "nearest")):
        ours = sample(unit(pixels[:1]), torch.from_numpy(rows), torch.from_numpy(columns), border)
        theirs = ndimage.map_coordinates(unit(pixels[:1])[0, 0].numpy(), [rows[0], columns[0]], order=1, mode=mode)
        np.testing.assert_allclose(ours[0, 0].numpy(), theirs, atol=1e-9)


def test_glass_blur_equals_cifar_cs_loop(pixels: torch.Tensor) -> None:
    """The published loop on array views, with the same moves."""
    x = pixels[:1].clone()
    found = corrupt(x, "glass_blur", 1, seed=0)  # σ = 0.05 blurs nothing: only the moves remain
    moves = _moves(x, seed=0)
    image = x[0].numpy().transpose(1, 2, 0).copy()
    for h in range(31, 1, -1):
        for w in range(31, 1, -1):
            dy, dx = moves[0, 0, h, w], moves[1, 0, h, w]
            a, b = (h, w), (h + dy, w + dx)
            image[a], image[b] = image[b], image[a]
    np.testing.assert_array_equal(found[0].numpy().transpose(1, 2, 0), image)


def _moves(x: torch.Tensor, seed: int) -> np.ndarray:
    import hashlib

    key = hashlib.blake2b(f"{seed}/glass_blur/1/0".encode(), digest_size=7).digest()
    rng = torch.Generator().manual_seed(int.from_bytes(key, "big"))
    return torch.randint(-1, 1, (2, len(x), 32, 32), generator=rng).numpy()


def test_motion_blur_smears_along_its_angle() -> None:
    dot = torch.zeros(2, 1, 33, 33, dtype=torch.float64)
    dot[:, :, 16, 16] = 1
    smeared = motion_blur(dot, radius=6, sigma=2.0, degrees=torch.tensor([0.0, 90.0], dtype=torch.float64))
    assert torch.equal(smeared[0, 0].sum(1) > 1e-6, torch.arange(33) == 16)  # one row
    assert torch.equal(smeared[1, 0].sum(0) > 1e-6, torch.arange(33) == 16)  # one column
    line = smeared[0, 0, 16]
    weights = torch.exp(-(torch.arange(13, dtype=torch.float64) ** 2) / 8)
    torch.testing.assert_close(line[4:17].flip(0), weights / weights.sum())


def test_plasma_fills_zero_to_one() -> None:
    field = plasma(5, 32, 2.0, torch.Generator().manual_seed(0))
    torch.testing.assert_close(field.amin((1, 2)), torch.zeros(5, dtype=torch.float64))
    torch.testing.assert_close(field.amax((1, 2)), torch.ones(5, dtype=torch.float64))


@pytest.mark.parametrize("size", [2, 31, 48])
def test_plasma_of_any_size_is_cut_from_the_next_power_of_two(size: int) -> None:
    """Halving another number's steps would leave rows that nothing fills; ImageNet-C cuts 224 from 256 so."""
    field = plasma(3, size, 2.0, torch.Generator().manual_seed(0))
    whole = plasma(3, 1 << (size - 1).bit_length(), 2.0, torch.Generator().manual_seed(0))
    assert torch.equal(field, whole[:, :size, :size])
    assert all(len(image.unique()) > 0.99 * size * size for image in whole)


def test_brightness_keeps_hue_and_saturation(pixels: torch.Tensor) -> None:
    import colorsys

    bright = corrupt(pixels, "brightness", 2)
    for y, x in ((3, 4), (16, 16), (30, 2)):
        h, s, v = colorsys.rgb_to_hsv(*(unit(pixels)[0, :, y, x].tolist()))
        expected = [255 * c for c in colorsys.hsv_to_rgb(h, s, min(1, v + 0.1))]
        np.testing.assert_allclose(bright[0, :, y, x].numpy(), expected, atol=1.001)


def test_contrast_keeps_the_mean(pixels: torch.Tensor) -> None:
    low = corrupt(pixels, "contrast", 5).double()
    torch.testing.assert_close(low.mean((2, 3)), pixels.double().mean((2, 3)), atol=0.6, rtol=0)
    assert (low.std((2, 3)) < 0.2 * pixels.double().std((2, 3)) + 0.5).all()


def test_jpeg_and_pixelate_are_pillows(pixels: torch.Tensor) -> None:
    import io

    from PIL import Image

    image = Image.fromarray(pixels[0].permute(1, 2, 0).numpy())
    file = io.BytesIO()
    image.save(file, "JPEG", quality=58)
    np.testing.assert_array_equal(
        corrupt(pixels, "jpeg_compression", 3)[0].permute(1, 2, 0), np.asarray(Image.open(file))
    )
    small = image.resize((24, 24), Image.Resampling.BOX).resize((32, 32), Image.Resampling.BOX)
    np.testing.assert_array_equal(corrupt(pixels, "pixelate", 4)[0].permute(1, 2, 0), np.asarray(small))


def test_chunks_do_not_depend_on_how_many_images_follow(pixels: torch.Tensor) -> None:
    few, many = corrupt(pixels[:4], "pixelate", 3), corrupt(pixels, "pixelate", 3)
    assert torch.equal(few, many[:4])


@pytest.mark.parametrize("workers", [1, 3])
def test_sets_made_ahead_by_threads_are_those_made_one_by_one(workers: int, pixels: torch.Tensor) -> None:
    threads = torch.get_num_threads()
    few, seen = pixels[:3], []
    for name, severity, made in corrupt_all(few, seed=5, workers=workers):
        seen.append((name, severity))
        assert torch.equal(made, corrupt(few, name, severity, seed=5)), (name, severity)
    assert seen == [(name, severity) for name in CORRUPTIONS for severity in SEVERITIES]
    assert torch.get_num_threads() == threads
