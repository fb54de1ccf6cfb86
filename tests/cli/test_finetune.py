"""`unsmooth finetune` from the command line."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from processes import CLI, Program
from safetensors.torch import save_file
from small_models import colour_folder


def test_arms_are_trained_compared_and_kept(cli: Callable[..., Any], tmp_path: Path) -> None:
    import timm

    sizes = {"depth": 2, "img_size": 64, "num_classes": 0}
    save_file(timm.create_model("vit_tiny_patch16_224", **sizes).state_dict(), tmp_path / "model.safetensors")
    tiny = ["timm:vit_tiny_patch16_224", "--weights", tmp_path / "model.safetensors"]
    tiny += [word for name, value in sizes.items() for word in ("--model-option", f"{name}={value}")]
    out, data = tmp_path / "runs", colour_folder(tmp_path / "colours")
    asked = ("finetune", *tiny, "--data", data, "--fractions", 1, "--seeds", 2,
             "--arms", "adapter-sharpening", "--epochs", 1, "--batch-size", 6, "--precision", "float32",
             "--device", "cpu", "--out", out)  # fmt: skip
    said = cli(*asked)
    assert "colours-100pct, plain, seed 1" in said.stderr
    assert "adapter-sharpening" in said.stdout
    assert "n = 2" in said.stdout
    assert "(Re λ < 0)²: share of Σ (Re λ)²" in said.stdout
    assert len(list(out.glob("*.json"))) == 4
    before = scores(out)
    assert "seed" not in cli(*asked).stderr  # nothing is run again
    killed = Program(CLI, [str(word) for word in (*asked[:-1], tmp_path / "killed")], tmp_path / "said")
    for line in killed.lines("stderr"):
        if "plain, seed 0" in line:
            killed.send(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    assert 1 <= len(scores(tmp_path / "killed")) < 4
    cli(*asked[:-1], tmp_path / "killed")
    assert scores(tmp_path / "killed") == before
    assert "another settings: epochs" in cli(*asked, "--epochs", 2, code=1).stderr
    assert "not both" in cli("finetune", *tiny, "--out", out, code=1).stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--superglue", "x", "--fractions", "0.5"], "--fractions and --test-images are for images (--data)"),
        (["--superglue", "x", "--test-images", "4"], "--fractions and --test-images are for images (--data)"),
        (["--data", "x", "--tasks", "RTE"], "--tasks are those of --superglue"),
    ],
)
def test_options_of_the_other_kind_of_data_are_refused(
    words: list[str], said: str, cli: Callable[..., Any], tmp_path: Path
) -> None:
    assert said in cli("finetune", "timm:vit_tiny_patch16_224", *words, "--out", tmp_path / "runs", code=1).stderr


def test_fine_tuning_lists_no_option_that_it_does_not_use(cli: Callable[..., Any]) -> None:
    """Weights are read in float32 and copied to the device for each run."""
    listed = cli("finetune", "--help").stdout
    assert "--weights" in listed
    assert "--dtype" not in listed
    assert "--device-map" not in listed


def scores(out: Path) -> dict[str, Any]:
    """What the files of runs say, whole ones all of them."""
    return {path.name: json.loads(path.read_text())["scores"] for path in out.iterdir()}
