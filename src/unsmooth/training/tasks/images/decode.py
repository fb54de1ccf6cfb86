"""Encoded images become pixels: torchvision's decoder where it gives what Pillow would, to the bit, else Pillow."""

from __future__ import annotations

import io
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from unsmooth.errors import DataError, MissingExtraError
from unsmooth.sources.images import to_rgb

JPEG = b"\xff\xd8"  # how such a file begins


def _decode(blob: Any, where: str) -> UInt8[np.ndarray, "channel height width"]:
    if not isinstance(blob, bytes):
        raise DataError(f"{where} holds no image: expected the bytes of an image file, got {type(blob).__name__}")
    if not blob:
        raise DataError(f"{where} is empty: remove it or repair it")
    if blob[:2] == JPEG and (pixels := _decode_jpeg(blob)) is not None:
        return pixels
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise MissingExtraError.needed("pillow", "train", "reading images") from error
    try:
        return np.asarray(to_rgb(Image.open(io.BytesIO(blob)))).transpose(2, 0, 1)
    except Exception as error:  # Pillow's readers of formats let errors of many kinds through
        why = "no format that Pillow knows" if isinstance(error, UnidentifiedImageError) else error
        raise DataError(f"{where} is not a readable image ({why}): remove it or repair it") from error


def decode_all(blobs: Sequence[Any], names: Sequence[str]) -> list[UInt8[np.ndarray, "channel height width"]]:
    """By as many threads as torch has: torchvision's decoder lets the others run meanwhile."""

    def some(start: int) -> list[Any]:
        return list(map(_decode, blobs[start : start + 256], names[start : start + 256]))

    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        return [image for part in pool.map(some, range(0, len(blobs), 256)) for image in part]


def _decode_jpeg(blob: bytes) -> UInt8[np.ndarray, "channel height width"] | None:
    """The pixels that Pillow would give, to the bit, and sooner; None where Pillow must look itself.

    torchvision's op, not its function: that warns that the op may leave for another library, and Pillow stays.
    """
    try:
        from torchvision.io import ImageReadMode

        encoded = torch.frombuffer(bytearray(blob), dtype=torch.uint8)
        pixels: Tensor = torch.ops.image.decode_jpeg(encoded, ImageReadMode.RGB.value, False)
    except (ImportError, AttributeError, RuntimeError, TypeError):
        return None
    return pixels.numpy()


def read_image(file: Path) -> bytes:
    """What the file holds."""
    try:
        return file.read_bytes()
    except OSError as error:
        raise DataError(f"{file} cannot be read ({error.strerror or error}): remove it or repair it") from error
