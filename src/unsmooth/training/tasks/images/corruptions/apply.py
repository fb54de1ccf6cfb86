"""Any corruption at any severity on a batch of images, from a seed; or all of them, made ahead by threads."""

from __future__ import annotations

import hashlib
import itertools
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from types import MappingProxyType

import torch
from jaxtyping import UInt8
from torch import Tensor

from unsmooth.errors import OptionError
from unsmooth.training.tasks.images.corruptions import blur, digital, noise, weather
from unsmooth.training.tasks.images.corruptions.filters import Images

Corruption = Callable[[Images, int, torch.Generator], Images]
CORRUPTIONS: Mapping[str, Corruption] = MappingProxyType(
    {
        "gaussian_noise": noise.gaussian_noise,
        "shot_noise": noise.shot_noise,
        "impulse_noise": noise.impulse_noise,
        "defocus_blur": blur.defocus_blur,
        "glass_blur": blur.glass_blur,
        "motion_blur": blur.motion,
        "zoom_blur": blur.zoom_blur,
        "snow": weather.snow,
        "frost": weather.frost,
        "fog": weather.fog,
        "brightness": digital.brightness,
        "contrast": digital.contrast,
        "elastic_transform": digital.elastic_transform,
        "pixelate": digital.pixelate,
        "jpeg_compression": digital.jpeg_compression,
    }
)
SEVERITIES = (1, 2, 3, 4, 5)
CHUNK = 1000  # images that share one random stream: part of the definition, not a setting


def corrupt(
    pixels: UInt8[Tensor, "image 3 size size"], name: str, severity: int, seed: int = 0
) -> UInt8[Tensor, "image 3 size size"]:
    """Corrupted copies; the same seed gives the same images, whatever else was corrupted before."""
    if name not in CORRUPTIONS:
        raise OptionError.unknown("corruption", name, CORRUPTIONS)
    if severity not in SEVERITIES:
        raise OptionError.unknown("severity", severity, SEVERITIES)
    parts = []
    for number, chunk in enumerate(pixels.cpu().split(CHUNK)):
        key = hashlib.blake2b(f"{seed}/{name}/{severity}/{number}".encode(), digest_size=7).digest()
        rng = torch.Generator().manual_seed(int.from_bytes(key, "big"))
        changed = CORRUPTIONS[name](chunk.double() / 255, severity, rng)
        # CIFAR-C cuts to whole numbers; 1e-9 keeps k/255·255 from falling to k − 1
        parts.append((changed.clamp(0, 1) * 255 + 1e-9).to(torch.uint8))
    return torch.cat(parts)


def corrupt_all(
    pixels: UInt8[Tensor, "image 3 size size"], seed: int = 0, workers: int = 1
) -> Iterator[tuple[str, int, UInt8[Tensor, "image 3 size size"]]]:
    """Every corruption at every severity, in order; `workers` threads are at most as many sets ahead.

    A GPU classifies a set in a fraction of a second that one core takes two seconds to make.
    """
    threads = torch.get_num_threads()
    ahead: deque[tuple[str, int, Future[Tensor]]] = deque()
    try:
        with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            for name, severity in itertools.product(CORRUPTIONS, SEVERITIES):
                ahead.append((name, severity, pool.submit(corrupt, pixels, name, severity, seed)))
                if len(ahead) > workers:
                    yield _finished(ahead)
            while ahead:
                yield _finished(ahead)
    finally:
        torch.set_num_threads(threads)


def _finished(ahead: deque[tuple[str, int, Future[Tensor]]]) -> tuple[str, int, Tensor]:
    name, severity, made = ahead.popleft()
    return name, severity, made.result()
