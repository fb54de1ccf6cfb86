"""The tables that put our runs beside the published numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from unsmooth.errors import DataError, OptionError
from unsmooth.paper import Context, find_item
from unsmooth.paper.changes import variant_of
from unsmooth.paper.published import cifar100_column, published
from unsmooth.paper.records import Summary, beside

VARIANTS = ("plain", "smoothing", "sharpening")


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
        "recipe": {"name": "cifar100", "epochs": 300},
        "command": "unsmooth train …",
        **changes,
    }


def write(folder: Path, *records: dict[str, Any]) -> None:
    for number, content in enumerate(records):
        (folder / f"{number}.json").write_text(json.dumps(content))


@pytest.mark.parametrize("name", ["table1", "table2", "table3"])
def test_published_tables_have_a_number_for_every_column(name: str) -> None:
    table = published(name)
    for kind in ("LayerNorm", "Attention", "MLP"):
        assert len(table[kind]) == len(table["columns"]) == 13


def test_published_numbers_are_those_of_the_sources() -> None:
    assert published("poster-table3")["sharpening"][5] == [40.07, 0.2]
    assert cifar100_column("table2", "plain") == {"LayerNorm": 0.573, "Attention": -0.171, "MLP": 5.171}
    assert cifar100_column("table3", "smoothing")["MLP"] == -0.038
    with pytest.raises(OptionError, match="unknown published table 'table9'"):
        published("table9")


def test_seeds_are_averaged_and_other_runs_left_out(tmp_path: Path) -> None:
    write(
        tmp_path,
        record("plain", 0, 0.1, 0.33),
        record("plain", 1, 0.1, 0.35),
        record("plain", 0, 0.1, 0.99, same_steps=True),
        record("plain", 0, 0.1, 0.99, std=0.5),
        record("plain", 0, 0.1, 0.99, recipe={"name": "cifar100-fast", "epochs": 300}),
        record("plain", 0, 0.1, 0.99, recipe={"name": "cifar100", "epochs": 3}),
        {"schema": "something else"},
    )
    (tmp_path / "broken.json").write_text("{")
    result = find_item("poster-table2").run(Context(runs=tmp_path))
    rows = {(row[0], row[1]): row[2:] for row in result.tables[0].rows}
    assert rows["10 %", "ViT-Ti"] == ["34.00 ± 1.41 (n=2)", "32.47 ± 0.9", "+1.53", None]
    assert rows["100 %", "ViT-Ti"][0] is None
    assert "1 of 9 cells" in result.label
    assert set(result.about) == {"plain-0.1-0", "plain-0.1-1"}


def test_an_order_that_disagrees_is_marked() -> None:
    theirs = {"plain": [60.0, 1.0], "smoothing": [50.0, 1.0], "sharpening": [70.0, 1.0]}
    agreeing = {v: Summary(theirs[v][0] - 3, None, 1) for v in VARIANTS}
    assert all(row[3] is None for row in beside(agreeing, theirs).values())
    swapped = {**agreeing, "sharpening": Summary(55.0, None, 1)}
    marks = {variant: row[3] for variant, row in beside(swapped, theirs).items()}
    assert marks == {
        "plain": "order differs from ViT-Ti⁻ (sharpening)",
        "smoothing": None,
        "sharpening": "order differs from ViT-Ti",
    }


def test_no_values_have_no_summary() -> None:
    assert Summary.of([]) is None
    assert str(Summary.of([33.07])) == "33.07 (n=1)"


def test_corruption_results_are_read_by_severity(tmp_path: Path) -> None:
    mean = {str(s): 0.6 - 0.05 * s for s in range(1, 6)}
    found = {"model": "m", "variant": "plain", "clean": {"accuracy": 0.66, "images": 10}}
    found |= {"corruptions": {"seed": 0, "mean": mean}}
    (tmp_path / "m.corruptions.json").write_text(json.dumps(found))
    result = find_item("poster-table3").run(Context(runs=tmp_path))
    ours = [row[2] for row in result.tables[0].rows if row[1] == "ViT-Ti"]
    assert ours == ["66.00 (n=1)", *(f"{60 - 5 * s:.2f} (n=1)" for s in range(1, 6))]
    assert "regenerated CIFAR-100-C" in result.label


def test_a_models_name_tells_its_variant() -> None:
    assert [variant_of(n) for n in ("cifar100-plain", "x-smoothing-seed1", "deit")] == ["plain", "smoothing", None]


@pytest.mark.parametrize("name", ["table1", "fig2"])
def test_without_any_model_the_item_says_what_to_do(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNSMOOTH_ZOO", str(tmp_path))
    with pytest.raises(DataError, match="no trained model is here: train one"):
        find_item(name).run(Context())


@pytest.fixture
def little_zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two small untrained models under names that tell their variant."""
    from unsmooth.train import build_model, find_recipe, save_model

    recipe = find_recipe("cifar100").override(["depth=2", "width=24", "heads=2", "patch_size=8"])
    for seed, variant in enumerate(("plain", "sharpening")):
        save_model(build_model(recipe, seed), tmp_path / f"cifar100-{variant}", recipe, {"variant": variant})
    monkeypatch.setenv("UNSMOOTH_ZOO", str(tmp_path))
    return tmp_path


@pytest.mark.usefixtures("little_zoo")
@pytest.mark.parametrize("name", ["table1", "table2", "table3"])
def test_changes_are_those_of_measure_and_signs_are_marked(name: str) -> None:
    from unsmooth.data import open_data
    from unsmooth.measure import measure
    from unsmooth.models import load_model

    metric = {"table1": "hfc_lfc", "table2": "effective_rank", "table3": "cosine_similarity"}[name]
    result = find_item(name).run(Context(limit=3))
    loaded = load_model("zoo:cifar100-plain")
    frame = measure(loaded.model, open_data("bundled", loaded, limit=3), metric).change_by_kind("chain")
    expected = dict(zip(frame["kind"], frame["mean"], strict=True))
    for model, reading, kind, ours, theirs, note in result.tables[0].rows:
        if (model, reading) == ("cifar100-plain", "chain"):
            assert float(ours) == pytest.approx(expected[kind], abs=6e-4)
        assert (note == "sign differs") == (float(ours) * float(theirs) < 0)
    assert {row[0] for row in result.tables[0].rows} == {"cifar100-plain", "cifar100-sharpening"}
    assert "the published attention and MLP" in result.notes[0]
    assert "signs agree" in result.notes[0]


def test_named_models_are_evaluated_now(tmp_path: Path) -> None:
    import torch
    from train.conftest import TINY, make_images, write_parquet

    from unsmooth.train import build_model, evaluate, find_recipe, load_images, save_model

    recipe = find_recipe("cifar100").override(TINY)
    about = {"run": "little", "variant": "plain", "seed": 0, "fraction": 0.1}
    save_model(build_model(recipe, 0), tmp_path / "little", recipe, about, half=False)
    write_parquet(tmp_path / "data", "test", *make_images(4, 1))
    context = Context(models=(str(tmp_path / "little"),), data=(str(tmp_path / "data"),), device="cpu")
    result = find_item("poster-table2").run(context)
    test = load_images(tmp_path / "data", "test")
    torch.manual_seed(0)
    expected = 100 * evaluate(build_model(recipe, 0), test.pixels, test.labels, recipe).accuracy
    ours = {row[2] for row in result.tables[0].rows} - {None}
    assert ours == {f"{expected:.2f} (n=1)"}


@pytest.mark.usefixtures("little_zoo")
def test_figure_2_names_the_variants_that_are_missing() -> None:
    result = find_item("fig2").run(Context(limit=2))
    assert any("no model of the variant smoothing" in note for note in result.notes)
