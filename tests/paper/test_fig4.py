"""Figure 4 and the poster's figure, on what is there."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import torch

import unsmooth
from unsmooth.errors import CheckpointError, OptionError
from unsmooth.paper import Context, find_item
from unsmooth.paper.pretrained import PRETRAINED, Pretrained

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
    result = find_item("fig4").run(Context(samples=2, batch_size=2))
    assert "one untrained model" in result.label
    assert "not the published" in result.label
    assert [row[0] for row in result.tables[0].rows] == ["ViT-Ti, random weights"] * 3


@pytest.mark.usefixtures("zoo")
def test_shipped_models_are_the_default_and_numbers_are_those_of_measure() -> None:
    result = find_item("fig4").run(Context(samples=2, batch_size=2))
    assert "ship with unsmooth, not the published ones, on bundled (2 samples)" in result.label
    from unsmooth.sources import load_model, open_data

    loaded = load_model("zoo:little")
    frame = unsmooth.measure(loaded.model, open_data("bundled", loaded, samples=2)).frame()
    means = frame.set_index(["metric", "point"])["mean"].to_dict()
    (row,) = (row for row in result.tables[0].rows if row[2] == "effective rank")
    points = ["embed", "blocks.1.post", "blocks.2.post"]
    assert row[:2] == ["little", 3]
    assert row[3:6] == [pytest.approx(means["effective_rank", point], rel=1e-6) for point in points]
    assert ">little<" in result.figures["fig4"].svg()


@pytest.mark.usefixtures("zoo")
def test_a_legend_has_room_for_the_name_of_a_stand_in(tmp_path: Path) -> None:
    shutil.copytree(Path(__file__).parents[2] / "zoo/results/models/tiny-imagenet-plain", tmp_path / "kept")
    result = find_item("fig4").run(Context(samples=2, runs=tmp_path))
    assert "ViT-S on Tiny-ImageNet (stand-in)" in {row[0] for row in result.tables[0].rows}
    assert ">ViT-S on Tiny-ImageNet<" in result.figures["fig4"].svg()


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
    result = find_item("fig4").run(Context(models=(f"Mine={path}", str(zoo)), data=("random",), samples=2))
    assert {row[0] for row in result.tables[0].rows} == {"Mine", str(zoo)}
    assert "models that you named" in result.label


@pytest.mark.usefixtures("zoo")
def test_the_poster_figure_sets_trained_models_beside_an_untrained_one() -> None:
    result = find_item("poster-fig1").run(Context(samples=2, batch_size=2))
    assert [(row[0], row[2]) for row in result.tables[0].rows] == [
        ("ViT-Ti, random weights", "HFC/LFC"),
        ("little", "HFC/LFC"),
    ]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The hub gives the published models' own classes, built from their configurations, but small and untrained."""
    import timm

    asked: list[str] = []

    def fetch(name: str, options: object) -> torch.nn.Module:
        asked.append(name)
        base = name.removeprefix("hf-hub:timm/").partition("@")[0]
        torch.manual_seed(0)
        return timm.create_model(base, depth=2, embed_dim=24, num_heads=2)

    monkeypatch.setattr("unsmooth.sources.load_timm._from_hub", fetch)
    return asked


def test_published_models_are_measured_under_their_columns(hub: list[str]) -> None:
    result = find_item("fig4").run(Context(models=("published",), samples=1))
    assert "the paper's ImageNet models" in result.label
    assert list(dict.fromkeys(row[0] for row in result.tables[0].rows)) == ["ViT-B", "DeiT-B", "ViT-L", "DeiT3-L"]
    assert hub == [model.source.removeprefix("timm:") for model in PRETRAINED]
    table = find_item("table1").run(Context(models=("published",), samples=1)).tables[-1]
    filled = {str(row[1]) for row in table.rows if row[3] is not None}
    assert filled == {"ViT-B", "DeiT-B", "ViT-L", "DeiT3-L"}


@pytest.mark.usefixtures("hub")
def test_published_models_stand_beside_others_that_are_named() -> None:
    mine = ("Mine=timm:hf-hub:timm/deit_base_patch16_224.fb_in1k", "published")
    result = find_item("fig4").run(Context(models=mine, samples=1))
    assert "models that you named" in result.label
    assert len({row[0] for row in result.tables[0].rows}) == 5


def test_an_item_without_published_models_says_which_have_them() -> None:
    with pytest.raises(OptionError, match="stands for ImageNet models of fig4, table1 to table3 and poster-table1"):
        find_item("fig2").run(Context(models=("published",), samples=1))


@pytest.mark.parametrize("known", PRETRAINED, ids=lambda known: known.column)
def test_published_models_are_what_timm_calls_by_these_names(known: Pretrained) -> None:
    import timm

    from unsmooth.models import view
    from unsmooth.sources.load_timm import image_input, outline

    config = timm.get_pretrained_cfg(known.name)
    assert config.hf_hub_id == f"timm/{known.name}"
    assert str(config.url).endswith("/" + known.original)
    model = outline(known.name, {})
    assert image_input(model) == known.images
    assert sum(p.numel() for p in model.parameters()) / 1e6 == pytest.approx(known.millions, abs=0.005)
    seen = view(model)
    assert (len(seen.layers), seen.layers[0].heads, model.embed_dim) == (known.layers, known.heads, known.width)


def test_published_models_are_of_a_fixed_revision_where_one_is_known() -> None:
    loose = [known.column for known in PRETRAINED if not re.fullmatch("[0-9a-f]{40}", known.revision)]
    assert loose == ["DeiT3-L"]


@pytest.mark.parametrize("item", ["fig4", "table1"])
def test_without_the_hub_it_is_said_how_to_measure_a_published_model_elsewhere(
    item: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def offline(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr("timm.create_model", offline)
    command = r"unsmooth measure timm:hf-hub:timm/vit_base\S+ --points all .* --out ViT-B.json"
    said = rf"ViT-B is neither .* nor can it be fetched \(no network\): .*{command}.* --model ViT-B=ViT-B.json"
    with pytest.raises(CheckpointError, match=said):
        find_item(item).run(Context(models=("published",), samples=1))


@pytest.mark.usefixtures("hub")
def test_a_published_model_with_other_preprocessing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from unsmooth.sources import ImageInput

    monkeypatch.setattr("unsmooth.sources.load_timm.image_input", lambda _: ImageInput(224, crop=0.875))
    with pytest.raises(CheckpointError, match="not with the preprocessing of the published model"):
        find_item("fig4").run(Context(models=("published",), samples=1))


@pytest.mark.usefixtures("empty_zoo")
def test_data_must_be_one_for_all_or_one_for_each() -> None:
    context = Context(models=("timm:a", "timm:b", "timm:c"), data=("x", "y"))
    with pytest.raises(OptionError, match="one --data for all models or one for each of 3, got 2"):
        find_item("fig4").run(context)


@pytest.mark.parametrize("item", ["fig4", "fig5", "table1"])
def test_two_models_of_one_name_are_refused_rather_than_one_lost(item: str) -> None:
    with pytest.raises(OptionError, match="several models are called run: give each a name, --model NAME=REFERENCE"):
        find_item(item).run(Context(models=("a/run.json", "b/run.json")))
