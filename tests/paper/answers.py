"""Records of our choice, and what the findings make of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from paper.records import SHORT, record

from unsmooth.paper import Context, find_item


def log(negative: float, ratio: float, epoch: int = 300, loss: float = 3.5) -> dict[str, Any]:
    spectrum = {"in_minus_one_zero": [negative] * 2, "positive": [1 - negative] * 2}
    return {"epoch": epoch, "spectrum": spectrum, "smoothing": {"hfc_lfc": [1.0, ratio]}, "train_loss": loss}


def write(folder: Path, *records: dict[str, Any]) -> None:
    folder.mkdir(exist_ok=True)
    for content in records:
        (folder / f"{content['run']}.json").write_text(json.dumps(content), encoding="utf-8")


def runs(folder: Path, gain: float, seeds: int = 9) -> None:
    """Plain with some spread, sharpening with less, smoothing clearly below."""
    rng = np.random.default_rng(0)
    for seed in range(seeds):
        plain = 0.32 + 0.008 * rng.normal()
        write(
            folder,
            record("plain", seed, 0.1, plain, epochs=[log(0.5, 1.0, 100), log(0.55 + 0.001 * seed, 2.0)]),
            record("sharpening", seed, 0.1, 0.32 + gain + 0.001 * rng.normal(), epochs=[log(0.99, 4.0, loss=3.4)]),
            record("smoothing", seed, 0.1, plain - 0.05 + 0.001 * rng.normal(), epochs=[log(0.0, 0.5)]),
        )


def short(variant: str, seed: int, accuracy: float, ends: dict[str, float] | None = None, **changes: Any) -> Any:
    """A run of the short recipe, with what was logged of the last block."""
    curves = {metric: [1.0, value] for metric, value in (ends or {"hfc_lfc": 2.0}).items()}
    name = f"short-{variant}-{seed}-{len(changes)}"
    about = {"run": name, "recipe": SHORT, "epochs": [{"epoch": 50, "smoothing": curves}]}
    return record(variant, seed, 0.1, accuracy, **about | changes)


def findings(folder: Path) -> dict[str, dict[str, Any]]:
    found = find_item("findings").run(Context(runs=folder)).about["findings"]
    return {f["question"]: f for f in found}


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found
