"""A model without a row on the command line: the row is found on the first batch, told of and kept with the result."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from model_cases import TEXT, hf

import unsmooth
from unsmooth.models import registry

pytest.importorskip("timm")
pytest.importorskip("transformers")
TIMM = ["timm:vit_tiny_patch16_224", "--random-init", "--model-option", "depth=2", "--model-option", "img_size=64"]
DATA = ["--data", "random", "--samples", "3", "--max-length", "12"]


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Takes rows out of the registry, and afterwards what was registered instead."""

    def take(*names: str) -> None:
        monkeypatch.setattr(registry, "_FAMILIES", [row for row in registry.families() if row.name not in names])

    return take


@pytest.fixture
def folder(tmp_path: Path) -> str:
    hf("Bert", wrap="BertForMaskedLM", **TEXT)().save_pretrained(tmp_path / "bert")  # type: ignore[operator]
    return f"hf:{tmp_path / 'bert'}"


def test_a_folder_whose_row_is_found_gives_the_numbers_of_its_family(
    cli: Callable[..., Any], without: Callable[..., None], folder: str, tmp_path: Path
) -> None:
    for verb in ("measure", "explain", "attribute"):
        assert "found" not in cli(verb, folder, *DATA, "--out", tmp_path / f"{verb}.json").stderr
    without("hf-bert")
    for verb in ("measure", "explain", "attribute"):
        told = cli(verb, folder, *DATA, "--out", tmp_path / f"{verb}-found.json").stderr
        assert (told.count(f"{folder}: no family matches this model, so its row was found") == 1) == (verb == "measure")
        ours, found = (unsmooth.load(tmp_path / f"{verb}{end}.json") for end in ("", "-found"))
        a, b = (result.frame().select_dtypes("number").to_numpy() for result in (ours, found))
        assert b == pytest.approx(a, rel=1e-3, abs=1e-6, nan_ok=True)
        assert (ours.about.model.family, ours.about.model.row) == ("hf-bert", None)
        assert found.about.model.family == "found:BertForMaskedLM"
        assert re.match(r"Family\(name='found:BertForMaskedLM', classes=\('transformers\.", found.about.model.row)
        assert "placement='post'" in found.about.model.row
        assert "value=Slot(path='attention.self.value')" in found.about.model.row


def test_the_row_of_a_timm_model_is_told_on_its_page(
    cli: Callable[..., Any], without: Callable[..., None], tmp_path: Path
) -> None:
    without("timm-vit")
    done = cli("report", *TIMM, "--data", "random", "--samples", "2", "--out", tmp_path / "page.html")
    assert "by running it on the first samples (pre-norm blocks in blocks, its attention's weights)" in done.stderr
    page = (tmp_path / "page.html").read_text()
    assert "row (found or registered, not tested with unsmooth)" in page
    assert "found:VisionTransformer" in page
    assert "block_classes=(&#x27;timm.Block&#x27;,)" in page


def test_what_has_no_row_to_find_keeps_its_reason(cli: Callable[..., Any]) -> None:
    refused = cli("measure", "timm:resnet18", "--random-init", "--data", "random", code=1).stderr
    assert "none of its modules is an attention or a Transformer by its name" in refused
    assert "By running it, no row can be found for ResNet: expected blocks in a ModuleList or Sequential" in refused
    refused = cli("measure", "timm:swin_tiny_patch4_window7_224", "--random-init", "--data", "random", code=1).stderr
    assert "merges tokens between its stages" in refused
    assert "By running it" not in refused
