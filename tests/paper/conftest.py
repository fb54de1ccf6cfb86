"""Small models under names that tell their variant."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def little_zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two small untrained models under names that tell their variant."""
    from unsmooth.training.tasks.images import RECIPES, build_model, save_model

    recipe = RECIPES["cifar100"].override(["depth=2", "width=24", "heads=2", "patch_size=8"])
    for seed, variant in enumerate(("plain", "sharpening")):
        about = {"variant": variant, "fraction": 0.1}
        save_model(build_model(recipe, seed), tmp_path / f"cifar100-{variant}", recipe, about)
    monkeypatch.setenv("UNSMOOTH_ZOO", str(tmp_path))
    return tmp_path
