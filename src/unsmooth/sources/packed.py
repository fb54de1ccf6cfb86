"""Arrays inside JSON: compressed, in base64."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray


def pack(array: NDArray[Any], kind: str) -> str:
    """The numbers as this dtype, in the order of their rows.

    >>> unpack(pack(np.array([[1.0, 2.0]]), "<f4"), "<f4", most=2).tolist()
    [1.0, 2.0]
    """
    return base64.b64encode(zlib.compress(array.astype(kind).tobytes())).decode()


def unpack(text: str, kind: str, most: int) -> NDArray[Any]:
    """At most so many numbers: a small file can claim to hold gigabytes. ValueError for more, and where it was cut."""
    size = most * np.dtype(kind).itemsize
    stream = zlib.decompressobj()
    try:
        content = stream.decompress(base64.b64decode(text), size + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if len(content) > size or not stream.eof:
        raise ValueError(f"expected a whole stream of at most {size:,} bytes")
    return np.frombuffer(content, kind)
