"""The notebooks: their code runs (in a light mode), their outputs and pictures are kept, and they lead on."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def cells(path: Path, kind: str) -> list[dict[str, Any]]:
    """The cells of one kind."""
    found = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [{**cell, "source": "".join(cell["source"])} for cell in found if cell["cell_type"] == kind]


def test_there_are_five() -> None:
    assert len(NOTEBOOKS) == 5


@pytest.fixture(scope="module")
def small_zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models of the zoo's names that take no time."""
    pytest.importorskip("timm")
    from unsmooth.sources.load_timm import create
    from unsmooth.sources.trained import save_trained

    folder = tmp_path_factory.mktemp("zoo")
    arguments = {"img_size": 16, "patch_size": 4, "embed_dim": 24, "depth": 2, "num_heads": 2, "num_classes": 10}
    config = {"name": "vit_tiny_patch16_224", "arguments": arguments, "mean": [0.5] * 3, "std": [0.5] * 3}
    for variant in ("plain", "sharpening", "smoothing"):
        save_trained(create("vit_tiny_patch16_224", arguments), folder / f"cifar100-{variant}", config)
    return folder


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_code_runs(path: Path, small_zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UNSMOOTH_ZOO", str(small_zoo))
    monkeypatch.setenv("UNSMOOTH_LIGHT", "1")
    names: dict[str, object] = {"__name__": "notebook"}
    for cell in cells(path, "code"):
        if not cell["source"].startswith("%pip"):
            exec(compile(cell["source"], f"{path.stem}, {cell['id']}", "exec", dont_inherit=True), names)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_begins_with_badge_and_install_line_has_outputs_and_leads_on(path: Path) -> None:
    text, code = cells(path, "markdown"), cells(path, "code")
    home = r"https://colab\.research\.google\.com/github/[\w-]+/unsmooth/blob/main/notebooks"  # whose: test_community
    assert re.search(rf"\]\({home}/{path.name}\)", text[0]["source"])
    assert re.fullmatch(r'%pip install -q "unsmooth\[\w+\]"', code[0]["source"])
    assert text[-1]["source"].startswith("## What to try next")
    for name in re.findall(r"\]\(([\w-]+\.ipynb)\)", "".join(cell["source"] for cell in text)):
        assert (FOLDER / name).exists(), name
    kept = [output for cell in code for output in cell["outputs"]]
    assert len(kept) >= 3
    assert not [output for output in kept if output["output_type"] == "error"]
    assert any("image/svg+xml" in output.get("data", {}) for output in kept)
    assert path.stat().st_size < 400_000
