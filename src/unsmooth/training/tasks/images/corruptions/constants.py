"""CIFAR-C's constants, by corruption and severity 1 … 5 (`make_cifar_c.py` of Hendrycks & Dietterich, 2019).

They are milder than ImageNet-C's. Lengths of `elastic_transform` are in units of the image's side.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

CONSTANTS: Mapping[str, tuple[Any, Any, Any, Any, Any]] = MappingProxyType(
    {
        "gaussian_noise": (0.04, 0.06, 0.08, 0.09, 0.10),  # standard deviation
        "shot_noise": (500, 250, 100, 75, 50),  # photons of a white pixel
        "impulse_noise": (0.01, 0.02, 0.03, 0.05, 0.07),  # share of values hit
        "defocus_blur": ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),  # radius, softening
        "glass_blur": ((0.05, 1), (0.25, 1), (0.4, 1), (0.25, 2), (0.4, 2)),  # σ, rounds; every move is ≤ 1 pixel
        "motion_blur": ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),  # radius, σ
        "zoom_blur": (1.06, 1.11, 1.16, 1.21, 1.26),  # end of numpy's arange(1, end, 0.01)
        "snow": (  # mean, deviation, zoom, threshold, radius, σ, share of the image kept
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
        "frost": ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),  # image, ice
        "fog": ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),  # strength, decay of the plasma
        "brightness": (0.05, 0.1, 0.15, 0.2, 0.3),  # added to HSV's value
        "contrast": (0.75, 0.5, 0.4, 0.3, 0.15),  # factor
        "elastic_transform": (  # strength, σ, reach of the affine map
            (0, 0, 0.08),
            (0.05, 0.2, 0.07),
            (0.08, 0.06, 0.06),
            (0.1, 0.04, 0.05),
            (0.1, 0.03, 0.03),
        ),
        "pixelate": (0.95, 0.9, 0.85, 0.75, 0.65),  # size
        "jpeg_compression": (80, 65, 58, 50, 40),  # quality
    }
)
