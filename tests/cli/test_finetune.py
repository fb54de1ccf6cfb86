"""`unsmooth finetune` from the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from sweeping.test_sweep import folder


def test_arms_are_trained_compared_and_kept(cli: Callable[..., Any], tiny: list[str], tmp_path: Path) -> None:
    out, data = tmp_path / "runs", folder(tmp_path / "colours")
    asked = ("finetune", *tiny, "--model-option", "num_classes=0", "--data", data, "--fractions", 1, "--seeds", 2,
             "--arms", "adapter-sharpening", "--epochs", 1, "--batch-size", 6, "--precision", "float32",
             "--device", "cpu", "--out", out)  # fmt: skip
    said = cli(*asked)
    assert "colours-100pct, plain, seed 1" in said.stderr
    assert "adapter-sharpening" in said.stdout
    assert "n = 2" in said.stdout
    assert len(list(out.glob("*.json"))) == 4
    assert "seed" not in cli(*asked).stderr  # nothing is run again
    assert "not both" in cli("finetune", *tiny, "--out", out, code=1).stderr
