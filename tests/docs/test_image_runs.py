"""The texts of docs/imagenet.md about runs and recipes follow from their numbers."""

from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from unsmooth.paper import Context
from unsmooth.paper.columns import kept_groups
from unsmooth.training.engine.record import TrainingRecord
from unsmooth.training.tasks.images.recipe import RECIPES

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def writer() -> ModuleType:
    """docs/image_runs.py."""
    spec = importlib.util.spec_from_file_location("image_runs_page", ROOT / "docs" / "image_runs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def keep(folder: Path, variant: str, accuracy: float, seed: int = 0) -> None:
    name = f"tiny-imagenet-{variant}-seed{seed}"
    final, recipe = {"accuracy": accuracy}, RECIPES["tiny-imagenet"].as_dict()
    record = TrainingRecord(name, variant, seed, 1.0, "unsmooth train …", 12.0, final, recipe, [{"step": 1}])
    record.save(folder / name / "record.json")


def test_what_is_said_of_the_runs_follows_from_their_records(writer: ModuleType, tmp_path: Path) -> None:
    keep(tmp_path, "plain", 0.601)
    keep(tmp_path, "sharpening", 0.6035)
    keep(tmp_path, "sharpening-split", 0.59)
    groups = kept_groups(Context(runs=tmp_path), [])
    table = writer.runs_table(groups)
    assert [row[1:4] for row in table.rows] == [
        ["plain", "60.10 (n=1)", "12.0"],
        ["sharpening-split", "59.00 (n=1)", "12.0"],
        ["sharpening", "60.35 (n=1)", "12.0"],
    ]
    published, control, lacking = writer.sentences(groups)
    assert published.startswith("tiny-imagenet, plain: 3.0 points above the 57.1 % that Lee et al.")
    assert "of one seed each: sharpening-split -1.10 and sharpening +0.25; on 10,000 images" in control
    assert lacking == "not run: smoothing-split and smoothing"


def test_several_seeds_are_compared_pair_by_pair(writer: ModuleType, tmp_path: Path) -> None:
    for seed, (plain, other) in enumerate([(0.50, 0.51), (0.52, 0.53), (0.51, 0.5201)]):
        keep(tmp_path, "plain", plain, seed)
        keep(tmp_path, "smoothing", other, seed)
    said = writer.sentences(kept_groups(Context(runs=tmp_path), []))
    assert said[0].startswith("tiny-imagenet, plain: 6.1 points below")
    assert said[1].startswith("tiny-imagenet: smoothing is above plain (+1.00 points")


def test_a_second_seed_of_some_variants_is_compared_with_the_one_it_shares(writer: ModuleType, tmp_path: Path) -> None:
    runs = (("plain", 0, 0.5), ("plain", 1, 0.6), ("smoothing", 0, 0.49), ("sharpening", 1, 0.62))
    for variant, seed, accuracy in runs:
        keep(tmp_path, variant, accuracy, seed)
    said = " ".join(writer.sentences(kept_groups(Context(runs=tmp_path), [])))
    assert "of one seed each: sharpening +2.00 and smoothing -1.00;" in said


def test_the_recipes_values_are_those_of_the_code(writer: ModuleType) -> None:
    changed = dataclasses.replace(RECIPES["tiny-imagenet"], batch_size=256, lr=2.5e-4, mix_prob=0.75, clip_norm=0.0)
    found = {str(row[0]): row[1] for row in writer.recipe_table([changed]).rows}
    assert found["epochs, batch"] == "100, 256"
    assert found["learning rate, warm-up"] == "2.5e-4, 10 epochs"
    assert found["weight decay, clipping"] == "0.05, none"
    assert found["Mixup, CutMix"] == "0.8, 1, 75 % of the batches"
    assert found["RandAugment"] == "2 × 9 ± 0.5, half of the time"
