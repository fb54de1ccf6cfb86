"""Whole corruptions against slow twins that follow CIFAR-C's definitions pixel by pixel, with the same draws."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import pytest
import torch
from scipy import ndimage

from unsmooth.training.tasks.images.corruptions import SEVERITIES, corrupt
from unsmooth.training.tasks.images.corruptions.constants import CONSTANTS
from unsmooth.training.tasks.images.corruptions.filters import motion_blur, plasma

SIZE = 32


@pytest.fixture(scope="module")
def pixels() -> torch.Tensor:
    """Two coloured pictures: shapes with edges, and one that is neither black nor white anywhere."""
    y, x = np.mgrid[:SIZE, :SIZE]
    waves = ((0.2, 0.5), (0.4, 0.1), (0.3, 0.3))
    shapes = [127 + 90 * np.sin(a * x + b * y) + 60 * ((x - 12) ** 2 + (y - 20) ** 2 < 90) for a, b in waves]
    soft = [100 + 2 * x + y * c for c in (0.3, 1.0, -0.5)]
    return torch.from_numpy(np.clip([shapes, soft], 0, 255).astype(np.uint8))


def stream(name: str, severity: int, seed: int = 0, part: int = 0) -> torch.Generator:
    """The random stream of a corruption's thousand images."""
    key = hashlib.blake2b(f"{seed}/{name}/{severity}/{part}".encode(), digest_size=7).digest()
    return torch.Generator().manual_seed(int.from_bytes(key, "big"))


def between(low: float, high: float, rng: torch.Generator, *shape: int) -> np.ndarray:
    return low + (high - low) * torch.rand(shape, generator=rng, dtype=torch.float64).numpy()


def assert_same(found: torch.Tensor, expected: np.ndarray) -> None:
    """Equal but for the last bit of a cut to whole numbers."""
    wanted = (np.clip(expected, 0, 1) * 255 + 1e-9).astype(np.uint8)
    difference = np.abs(found.numpy().astype(int) - wanted)
    assert difference.max() <= 1
    assert (difference > 0).mean() < 1e-3


def plain_plasma(count: int, decay: float, rng: torch.Generator) -> np.ndarray:
    """Diamond-square point by point: the mean of four neighbours (the map is a torus) and noise."""
    field, step, wibble = np.zeros((count, SIZE, SIZE)), SIZE, 100.0
    while step >= 2:
        half = step // 2
        cross = ((-half, 0), (half, 0), (0, -half), (0, half))
        corners = ((-half, -half), (-half, half), (half, -half), (half, half))
        for down, right, around in ((half, half, corners), (0, half, cross), (half, 0, cross)):
            noise = between(-wibble * wibble, wibble * wibble, rng, count, SIZE // step, SIZE // step)
            for i, y in enumerate(range(down, SIZE, step)):
                for j, x in enumerate(range(right, SIZE, step)):
                    near = sum(field[:, (y + dy) % SIZE, (x + dx) % SIZE] for dy, dx in around)
                    field[:, y, x] = near / 4 + noise[:, i, j]
        step, wibble = half, wibble / decay
    low, high = field.min((1, 2), keepdims=True), field.max((1, 2), keepdims=True)
    return (field - low) / (high - low)


def clipped_zoom(image: np.ndarray, factor: float) -> np.ndarray:
    """The centre of (height, width) enlarged by scipy."""
    crop = math.ceil(SIZE / factor)
    top = (SIZE - crop) // 2
    larger = ndimage.zoom(image[top : top + crop, top : top + crop], factor, order=1)
    trim = (larger.shape[0] - SIZE) // 2
    return larger[trim : trim + SIZE, trim : trim + SIZE]


@pytest.mark.parametrize("decay", [3.0, 1.75])
def test_plasma_is_diamond_square_on_a_torus(decay: float) -> None:
    ours = plasma(2, SIZE, decay, torch.Generator().manual_seed(3))
    theirs = plain_plasma(2, decay, torch.Generator().manual_seed(3))
    np.testing.assert_allclose(ours.numpy(), theirs, atol=1e-9)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_fog_adds_plasma_and_scales_back_to_the_brightest_value(severity: int, pixels: torch.Tensor) -> None:
    strength, decay = CONSTANTS["fog"][severity - 1]
    x = pixels.numpy() / 255
    top = x.max((1, 2, 3), keepdims=True)
    clouds = plain_plasma(2, decay, stream("fog", severity))[:, None]
    assert_same(corrupt(pixels, "fog", severity), (x + strength * clouds) * top / (top + strength))


def test_frost_lies_on_the_image_whatever_it_shows(pixels: torch.Tensor) -> None:
    """Ice, slightly blue, on a black image; on another one the same ice over a paler image."""
    keep, most = CONSTANTS["frost"][2]
    ice = corrupt(torch.zeros_like(pixels), "frost", 3).double() / 255
    assert float(ice[:, 2].amin()) < 0.01
    assert float(ice[:, 2].amax()) == pytest.approx(most, abs=0.01)
    torch.testing.assert_close(ice[:, 0], 0.85 * ice[:, 2], atol=0.005, rtol=0)
    torch.testing.assert_close(ice[:, 1], 0.95 * ice[:, 2], atol=0.005, rtol=0)
    field = plain_plasma(2, 1.75, stream("frost", 3))  # ridges are where it is half way
    np.testing.assert_allclose(ice[:, 2], most * (1 - abs(2 * field - 1)), atol=0.005)
    covered = keep * pixels.double() / 255 + ice
    torch.testing.assert_close(corrupt(pixels, "frost", 3).double() / 255, covered.clamp(max=1), atol=0.009, rtol=0)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_snow_is_cifar_cs(severity: int, pixels: torch.Tensor) -> None:
    """Thresholded noise, zoomed, blurred downwards, also turned by 180°, over an image drawn towards pale grey."""
    loc, scale, factor, threshold, radius, sigma, keep = CONSTANTS["snow"][severity - 1]
    rng, dark = stream("snow", severity), pixels.repeat(4, 1, 1, 1) // 4
    drawn = loc + scale * torch.randn(8, 1, SIZE, SIZE, generator=rng, dtype=torch.float64).numpy()
    expected = []
    for image, noise, degrees in zip(dark.numpy() / 255, drawn, between(-135, -45, rng, 8), strict=True):
        flakes = clipped_zoom(noise[0], factor)
        flakes = np.floor(np.clip(np.where(flakes < threshold, 0, flakes), 0, 1) * 255) / 255
        angle = torch.tensor([degrees], dtype=torch.float64)
        flakes = motion_blur(torch.from_numpy(flakes)[None, None], radius, sigma, angle)[0, 0].numpy()
        flakes = np.round(flakes * 255) / 255
        grey = np.tensordot([0.299, 0.587, 0.114], image, 1)
        pale = keep * image + (1 - keep) * np.maximum(image, 1.5 * grey + 0.5)
        expected.append(pale + flakes + flakes[::-1, ::-1])
    assert_same(corrupt(dark, "snow", severity), np.stack(expected))


@pytest.mark.parametrize("severity", SEVERITIES)
def test_a_camera_moves_within_45_degrees_of_horizontal(severity: int, pixels: torch.Tensor) -> None:
    radius, sigma = CONSTANTS["motion_blur"][severity - 1]
    degrees = torch.from_numpy(between(-45, 45, stream("motion_blur", severity), 2))
    blurred = motion_blur(pixels.double() / 255, radius, sigma, degrees).numpy()
    assert_same(corrupt(pixels, "motion_blur", severity), np.round(blurred * 255) / 255)


def test_motion_goes_down_by_whole_pixels_where_the_angle_says() -> None:
    """A dot appears where the pixels look: i steps of (cos, sin), rounded half down."""
    dot = torch.zeros(1, 1, SIZE, SIZE, dtype=torch.float64)
    dot[..., 16, 16] = 1
    found = motion_blur(dot, 4, 2.0, torch.tensor([30.0], dtype=torch.float64))[0, 0].numpy()
    weights = np.exp(-(np.arange(9) ** 2) / 8)
    expected = np.zeros((SIZE, SIZE))
    for i, weight in enumerate(weights / weights.sum()):
        right, down = (math.ceil(i * f(math.radians(30)) - 0.5) for f in (math.cos, math.sin))
        expected[16 - down, 16 - right] += weight
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_defocus_is_a_softened_disk_on_cifar_cs_seventeen_pixels(severity: int, pixels: torch.Tensor) -> None:
    radius, alias = CONSTANTS["defocus_blur"][severity - 1]
    at = np.arange(-8, 9)
    disk = (np.add.outer(at**2, at**2) <= radius**2).astype(float)
    taps = np.exp(-np.array([1.0, 0.0, 1.0]) / (2 * alias**2))
    for axis in (0, 1):
        disk = ndimage.correlate1d(disk, taps / taps.sum(), axis)
    x = pixels.numpy() / 255
    assert_same(
        corrupt(pixels, "defocus_blur", severity), ndimage.correlate(x, (disk / disk.sum())[None, None], mode="mirror")
    )


@pytest.mark.parametrize("severity", [1, 5])
def test_zoom_blur_is_the_mean_of_the_image_and_its_enlargements(severity: int, pixels: torch.Tensor) -> None:
    x = pixels.numpy() / 255
    factors = np.arange(1, CONSTANTS["zoom_blur"][severity - 1], 0.01)
    larger = [np.stack([[clipped_zoom(c, f) for c in image] for image in x]) for f in factors]
    assert_same(corrupt(pixels, "zoom_blur", severity), np.mean([x, *larger], 0))


@pytest.mark.parametrize("severity", SEVERITIES)
def test_elastic_is_a_random_affine_map_then_a_smooth_displacement(severity: int, pixels: torch.Tensor) -> None:
    alpha, sigma, reach = (SIZE * c for c in CONSTANTS["elastic_transform"][severity - 1])
    rng = stream("elastic_transform", severity)
    moves, noise = between(-reach, reach, rng, 2, 3, 2), between(-1, 1, rng, 2, 2, SIZE, SIZE)
    centre, arm = SIZE // 2, SIZE // 3
    corners = centre + arm * np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]])  # x, y
    rows, columns = np.mgrid[:SIZE, :SIZE].astype(float)
    expected = []
    for image, moved, draws in zip(pixels.numpy() / 255, corners + moves, noise, strict=True):
        back = np.linalg.solve(
            np.column_stack([moved, np.ones(3)]), corners
        )  # from where a corner went to where it was
        places = np.stack([columns, rows, np.ones_like(rows)], -1) @ back
        warped = [ndimage.map_coordinates(c, [places[..., 1], places[..., 0]], order=1, mode="mirror") for c in image]
        dx, dy = (alpha * ndimage.gaussian_filter(d, sigma, mode="reflect", truncate=3) for d in draws)
        expected.append(
            [ndimage.map_coordinates(c, [rows + dy, columns + dx], order=1, mode="reflect") for c in warped]
        )
    assert_same(corrupt(pixels, "elastic_transform", severity), np.array(expected))


def test_every_thousand_images_have_a_random_stream_of_their_own() -> None:
    grey = torch.full((1003, 3, 2, 2), 100, dtype=torch.uint8)
    found = corrupt(grey, "gaussian_noise", 1, seed=4)
    for part, count in ((0, 1000), (1, 3)):
        noise = torch.randn(count, 3, 2, 2, generator=stream("gaussian_noise", 1, 4, part), dtype=torch.float64)
        assert_same(found[1000 * part :][:count], 100 / 255 + 0.04 * noise.numpy())


def test_a_black_pixel_brightens_to_grey() -> None:
    black = torch.zeros(1, 3, SIZE, SIZE, dtype=torch.uint8)
    assert_same(corrupt(black, "brightness", 5), np.full(black.shape, 0.3))


def test_glass_blur_moves_twice_between_its_two_blurs(pixels: torch.Tensor) -> None:
    sigma, rounds = CONSTANTS["glass_blur"][4]
    rng = stream("glass_blur", 5)
    x = np.floor(ndimage.gaussian_filter(pixels[0].numpy() / 255, (0, sigma, sigma), mode="nearest") * 255)
    for _ in range(rounds):
        down, right = torch.randint(-1, 1, (2, 1, SIZE, SIZE), generator=rng)[:, 0].numpy()
        for h in range(SIZE - 1, 1, -1):
            for w in range(SIZE - 1, 1, -1):
                x[:, h, w] = x[:, h + down[h, w], w + right[h, w]]
    expected = ndimage.gaussian_filter(x / 255, (0, sigma, sigma), mode="nearest")
    assert_same(corrupt(pixels[:1], "glass_blur", 5), expected[None])
