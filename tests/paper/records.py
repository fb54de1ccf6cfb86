"""Records of runs as `unsmooth train` writes them, with numbers of our choice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from unsmooth.training.tasks.images import RECIPES

VARIANTS = ("plain", "smoothing", "sharpening")
STANDARD = RECIPES["cifar100"].as_dict()
SHORT = RECIPES["cifar100-fast"].as_dict()
CURVES = {"hfc_lfc": [1.0, 2.0, 3.0], "cosine_similarity": [0.5, 0.4, 0.3], "effective_rank": [10.0, 20.0, 30.0]}


def record(variant: str, seed: int, fraction: float, accuracy: float, **changes: Any) -> dict[str, Any]:
    return {
        "schema": "unsmooth-record/1",
        "run": f"{variant}-{fraction}-{seed}",
        "variant": variant,
        "seed": seed,
        "fraction": fraction,
        "same_steps": False,
        "std": None,
        "final": {"accuracy": accuracy},
        "recipe": STANDARD,
        "command": "unsmooth train …",
        "minutes": 2.0,
        "epochs": [{"epoch": 300, "smoothing": CURVES}],
        **changes,
    }


def write(folder: Path, *records: dict[str, Any]) -> None:
    for number, content in enumerate(records):
        (folder / f"{number}.json").write_text(json.dumps(content))


def corrupted(folder: Path, model: str, **about: Any) -> None:
    mean = {str(s): 0.6 - 0.05 * s for s in range(1, 6)}
    clean = {"accuracy": 0.66, "loss": 1.5, "calibration_error": 0.05, "images": 10_000}
    found = {"model": model, "variant": "plain", "clean": clean, **about}
    found |= {"corruptions": {"seed": 0, "mean": mean}}
    name = model.rpartition("/")[2].rpartition(":")[2]
    (folder / f"{name}.corruptions.json").write_text(json.dumps(found))
