"""Pictures of every kind are trained on as they look: grey, 16-bit, CMYK, palettes, transparency, any shape."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

from unsmooth.errors import DataError
from unsmooth.sources.loaded import ImageInput
from unsmooth.training.tasks.images.crops import centre_crop, random_crop
from unsmooth.training.tasks.images.decode import decode_all

Image = pytest.importorskip("PIL.Image")
RAMP = np.linspace(0, 1, 64)[None].repeat(64, 0)  # from black on the left to white on the right


def encoded(image: Any, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def ramp(kind: type = np.uint8) -> Any:
    return Image.fromarray((RAMP * np.iinfo(kind).max).astype(kind))


def rotated(image: Any) -> dict[str, Any]:
    exif = image.getexif()
    exif[0x0112] = 6
    return {"exif": exif}


PICTURES = {
    "grey JPEG": lambda: encoded(ramp(), "JPEG"),
    "grey PNG": lambda: encoded(ramp(), "PNG"),
    "16-bit PNG": lambda: encoded(ramp(np.uint16), "PNG"),
    "16-bit TIFF": lambda: encoded(ramp(np.uint16), "TIFF"),
    "CMYK JPEG": lambda: encoded(ramp().convert("RGB").convert("CMYK"), "JPEG"),
    "palette": lambda: encoded(ramp().convert("RGB").quantize(64), "PNG"),
    "palette with transparency": lambda: encoded(
        ramp().convert("RGB").quantize(64), "PNG", transparency=bytes([0, 128, 255])
    ),
    "grey with transparency": lambda: encoded(ramp().convert("LA"), "PNG"),
    "colour with transparency": lambda: encoded(ramp().convert("RGBA"), "PNG"),
    "rotated by its EXIF": lambda: encoded(ramp(), "JPEG", **rotated(ramp())),  # as torchvision's ImageFolder: not
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_looks_the_same_in_every_mode(name: str) -> None:
    blob = PICTURES[name]()
    (whole,) = decode_all([blob], [name])
    for found in (whole, centre_crop(blob, ImageInput(64)), random_crop(blob, 64, 1.0, seed=0)):
        assert found.shape == (3, 64, 64)
        assert found.dtype == np.uint8
        np.testing.assert_allclose(found.mean((0, 1)), 255 * RAMP[0], atol=6)


def test_pixels_without_a_known_range_are_refused_rather_than_black() -> None:
    blob = encoded(Image.fromarray(RAMP.astype(np.float32)), "TIFF")
    with pytest.raises(DataError, match=r"ramp.tif is not a readable image \(it has pixels of 32 bits"):
        decode_all([blob], ["ramp.tif"])
    with pytest.raises(DataError, match="it has pixels of 32 bits, whose range is not known: expected 8 or 16 bits"):
        centre_crop(blob, ImageInput(16))


@pytest.mark.parametrize("size", [(1, 1), (1, 3000), (3000, 1), (5, 7)])
def test_a_picture_of_any_shape_fills_the_square(size: tuple[int, int]) -> None:
    blob = encoded(Image.new("RGB", size, (10, 200, 30)), "PNG")
    for found in (centre_crop(blob, ImageInput(16, crop=0.875)), random_crop(blob, 16, 0.08, seed=1)):
        assert found.shape == (3, 16, 16)
        assert (found == np.array([10, 200, 30])[:, None, None]).all()


def test_whatever_a_reader_of_pictures_raises_is_one_bad_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyError

    blob = encoded(ramp(), "PNG")
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", fail)
    with pytest.raises(DataError, match="KeyError"):
        centre_crop(blob, ImageInput(16))
    with pytest.raises(DataError, match=r"ramp.png is not a readable image"):
        decode_all([blob], ["ramp.png"])
