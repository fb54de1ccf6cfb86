"""Figure 4 and the poster's figure, on what is there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import unsmooth
from unsmooth.errors import OptionError
from unsmooth.paper import Context, find_item

pytest.importorskip("timm")


@pytest.fixture
def empty_zoo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("UNSMOOTH_ZOO", str(tmp_path))
    return tmp_path


@pytest.fixture
def zoo(empty_zoo: Path) -> Path:
    """One small model, as `train` saves it."""
    import timm
    from safetensors.torch import save_file

    arguments = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "num_heads": 2, "depth": 3, "num_classes": 4}
    config = {"schema": "unsmooth-model/1", "library": "timm", "name": "vit_tiny_patch16_224", "arguments": arguments}
    folder = empty_zoo / "little"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**config, "mean": [0.5] * 3, "std": [0.5] * 3}))
    torch.manual_seed(0)
    save_file(timm.create_model("vit_tiny_patch16_224", **arguments).state_dict(), folder / "model.safetensors")
    return folder


@pytest.mark.usefixtures("empty_zoo")
def test_without_any_weights_an_untrained_model_is_labelled_as_such() -> None:
    result = find_item("fig4").run(Context(limit=2, batch_size=2))
    assert "one untrained model" in result.label
    assert "not the published" in result.label
    assert [row[0] for row in result.tables[0].rows] == ["ViT-Ti, random weights"] * 3


@pytest.mark.usefixtures("zoo")
def test_shipped_models_are_the_default_and_numbers_are_those_of_measure() -> None:
    result = find_item("fig4").run(Context(limit=2, batch_size=2))
    assert "ship with unsmooth, not the published ones, on bundled (2 samples)" in result.label
    from unsmooth.sources import load_model, open_data

    loaded = load_model("zoo:little")
    frame = unsmooth.measure(loaded.model, open_data("bundled", loaded, limit=2)).frame()
    means = frame.set_index(["metric", "point"])["mean"].to_dict()
    (row,) = (row for row in result.tables[0].rows if row[2] == "effective rank")
    points = ["embed", "blocks.1.post", "blocks.2.post"]
    assert row[:2] == ["little", 3]
    assert row[3:6] == [pytest.approx(means["effective_rank", point], rel=1e-6) for point in points]
    assert ">little<" in result.figures["fig4"].svg()


@pytest.mark.usefixtures("zoo")
def test_figure_5_shows_shipped_models_by_default() -> None:
    result = find_item("fig5").run(Context())
    assert "the models that ship with unsmooth, not the published ones" in result.label
    assert [row[:3:2] for row in result.tables[0].rows] == [["little", "bare"], ["little", "folded"]]
    assert result.about["models"] == ["little=zoo:little"]


def test_runs_and_models_can_be_named(zoo: Path, tmp_path: Path) -> None:
    import timm

    model = timm.create_model("vit_tiny_patch16_224", img_size=32, patch_size=8, embed_dim=32, num_heads=2, depth=2)
    path = unsmooth.measure(model, [torch.randn(2, 3, 32, 32)]).save(tmp_path / "run.json")
    result = find_item("fig4").run(Context(models=(f"Mine={path}", str(zoo)), data=("random",), limit=2))
    assert {row[0] for row in result.tables[0].rows} == {"Mine", str(zoo)}
    assert "models that you named" in result.label


@pytest.mark.usefixtures("zoo")
def test_the_poster_figure_sets_trained_models_beside_an_untrained_one() -> None:
    result = find_item("poster-fig1").run(Context(limit=2, batch_size=2))
    assert [(row[0], row[2]) for row in result.tables[0].rows] == [
        ("ViT-Ti, random weights", "HFC/LFC"),
        ("little", "HFC/LFC"),
    ]


@pytest.mark.usefixtures("empty_zoo")
def test_data_must_be_one_for_all_or_one_for_each() -> None:
    context = Context(models=("timm:a", "timm:b", "timm:c"), data=("x", "y"))
    with pytest.raises(OptionError, match="one --data for all models or one for each of 3, got 2"):
        find_item("fig4").run(context)


@pytest.mark.parametrize("item", ["fig4", "fig5", "table1"])
def test_two_models_of_one_name_are_refused_rather_than_one_lost(item: str) -> None:
    with pytest.raises(OptionError, match="several models are called run: give each a name, --model NAME=REFERENCE"):
        find_item(item).run(Context(models=("a/run.json", "b/run.json")))
