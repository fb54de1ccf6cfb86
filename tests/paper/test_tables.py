"""The tables that put our runs beside the published numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
from results import about_measured

from unsmooth.errors import DataError, OptionError
from unsmooth.paper import Context, find_item
from unsmooth.paper.changes import Group, better_reading, variant_of
from unsmooth.paper.published import cifar100_column, published
from unsmooth.paper.records import Summary


@pytest.mark.parametrize("name", ["table1", "table2", "table3"])
def test_published_tables_have_a_number_for_every_column(name: str) -> None:
    table = published(name)
    for kind in ("LayerNorm", "Attention", "MLP"):
        assert len(table[kind]) == len(table["columns"]) == 13


def test_published_numbers_are_those_of_the_sources() -> None:
    """The columns that ours stand beside, as the paper and the poster print them."""
    kinds, variants = ("LayerNorm", "Attention", "MLP"), ("plain", "sharpening", "smoothing")
    printed = {
        "table1": ((-0.073, -0.165, 0.425), (0.011, 0.418, 0.418), (-0.043, -0.121, 0.168)),
        "table2": ((0.573, -0.171, 5.171), (1.304, 4.754, -0.217), (0.684, -2.870, 3.118)),
        "table3": ((0.006, 0.040, -0.078), (-0.004, -0.086, 0.054), (0.001, 0.052, -0.038)),
    }
    for name, columns in printed.items():
        for variant, column in zip(variants, columns, strict=True):
            assert cifar100_column(name, variant) == dict(zip(kinds, column, strict=True))
    accuracy = {
        "poster-table2": ((66.78, 56.38, 32.47), (66.62, 56.58, 33.99), (64.34, 55.21, 28.67)),
        "poster-table3": (
            (66.78, 61.59, 57.75, 53.12, 49.32, 39.17),
            (66.62, 61.62, 58.00, 53.56, 49.70, 40.07),
            (64.34, 58.36, 53.83, 49.03, 45.15, 35.86),
        ),
    }
    for name, rows in accuracy.items():
        for variant, row in zip(variants, rows, strict=True):
            assert tuple(mean for mean, _ in published(name)[variant]) == row
    with pytest.raises(OptionError, match="unknown published table 'table9'"):
        published("table9")


def test_rows_go_by_share_then_by_variant_then_by_form() -> None:
    from unsmooth.paper.changes import _rows

    same = {reading: {"MLP": Summary(0.1, None, 1)} for reading in ("chain", "residual")}
    groups = [("sharpening", 0.1), ("sharpening-eigen", 1.0), ("plain", 1.0), ("sharpening", 1.0), ("smoothing", 1.0)]
    rows = _rows("table1", {Group(*group): same for group in groups} | {Group("plain", None): same})
    assert list(dict.fromkeys((row[0], row[1]) for row in rows)) == [
        ("ViT-Ti", "100 %"),
        ("ViT-Ti⁺ (smoothing)", "100 %"),
        ("ViT-Ti⁻ (sharpening)", "100 %"),
        ("ViT-Ti⁻ (sharpening), eigen", "100 %"),
        ("ViT-Ti⁻ (sharpening)", "10 %"),
        ("ViT-Ti", "?"),
    ]


def test_a_models_name_tells_its_variant() -> None:
    names = ("cifar100-plain", "x-smoothing-seed1", "sharpening-eigen-seed0", "sharpening@first-half", "deit")
    assert [variant_of(n) for n in names] == ["plain", "smoothing", "sharpening-eigen", None, None]


@pytest.mark.parametrize("name", ["table1", "fig2"])
def test_without_any_model_the_item_says_what_to_do(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNSMOOTH_ZOO", str(tmp_path))
    with pytest.raises(DataError, match="no trained model is here: train one"):
        find_item(name).run(Context())


@pytest.mark.usefixtures("little_zoo")
@pytest.mark.parametrize("name", ["table1", "table2", "table3"])
def test_changes_are_those_of_measure_and_signs_are_marked(name: str) -> None:
    from unsmooth.analysis import measure
    from unsmooth.sources import load_model, open_data

    metric = {"table1": "hfc_lfc", "table2": "effective_rank", "table3": "cosine_similarity"}[name]
    result = find_item(name).run(Context(samples=3))
    loaded = load_model("zoo:cifar100-plain")
    frame = measure(loaded.model, open_data("bundled", loaded, samples=3), metric).change_by_kind("chain")
    expected = dict(zip(frame["kind"], frame["mean"], strict=True))
    for model, share, reading, kind, ours, theirs, note in result.tables[0].rows:
        value = float(str(ours).removesuffix(" (n=1)"))
        assert share == "10 %"
        if (model, reading) == ("ViT-Ti", "chain"):
            assert value == pytest.approx(expected[kind], abs=6e-4)
        if value != 0:  # which may stand for either sign, rounded as it is
            assert (note == "sign differs") == (value * float(str(theirs)) < 0)
    assert {row[0] for row in result.tables[0].rows} == {"ViT-Ti", "ViT-Ti⁻ (sharpening)"}
    assert any("published models were trained on all data" in note for note in result.notes)
    assert any("footnote 2's `split` form" in note for note in result.notes)
    assert "the published attention and MLP" in result.notes[0]
    assert "signs agree" in result.notes[0]


@pytest.mark.usefixtures("little_zoo")
def test_models_of_one_variant_are_averaged() -> None:
    models = ("a-plain=zoo:cifar100-plain", "b-plain=zoo:cifar100-plain")
    result = find_item("table1").run(Context(models=models, samples=2))
    assert all("± 0.000 (n=2)" in str(row[4]) for row in result.tables[0].rows)


def test_a_variant_that_the_table_does_not_have_is_left_out_by_name(little_zoo: Path) -> None:
    from unsmooth.training.tasks.images import RECIPES, build_model, save_model

    recipe = RECIPES["cifar100"].override(["depth=2", "width=24", "heads=2", "patch_size=8"])
    save_model(build_model(recipe, 0), little_zoo / "mixed", recipe, {"variant": "sharpening@:1"})
    with pytest.raises(DataError, match="no model of a known variant: its name must contain plain, sharpening or"):
        find_item("table1").run(Context(models=("zoo:mixed",), samples=1))
    result = find_item("table1").run(Context(models=("strange=zoo:mixed", "zoo:cifar100-plain"), samples=1))
    assert {row[0] for row in result.tables[0].rows} == {"ViT-Ti"}
    assert "left out, of a variant that the table does not have: strange" in result.notes
    assert not any("footnote 2's `split` form" in note for note in result.notes)  # no controlled model is there


def test_the_reading_that_lies_nearer_is_named() -> None:
    theirs = cifar100_column("table1", "plain")

    def changes(gap: float) -> dict[str, Summary]:
        return {kind: Summary(theirs[kind] + gap, None, 1) for kind in ("Attention", "MLP")}

    clear = {Group("plain", 1.0): {"chain": changes(0.5), "residual": changes(0.1)}}
    assert better_reading("table1", clear).startswith("the reading `residual` fits")
    close = {Group("plain", 1.0): {"chain": changes(0.5), "residual": changes(0.49)}}
    assert better_reading("table1", close).startswith("neither reading of change clearly fits")
    assert "(our models; chain: mean gap 0.500, " in better_reading("table1", clear)


def test_models_on_all_data_decide_alone_which_reading_lies_nearer() -> None:
    theirs = cifar100_column("table1", "plain")
    near, far = ({"MLP": Summary(theirs["MLP"] + gap, None, 1)} for gap in (0.1, 2.0))
    all_data = {Group("plain", 1.0): {"chain": near, "residual": far}}
    less = {
        Group("plain", 0.1): {"chain": far, "residual": near},
        Group("plain", None): {"chain": far, "residual": near},
    }
    said = better_reading("table1", all_data | less)
    assert said.startswith("the reading `chain` fits")
    assert "(our models on all data; chain: mean gap 0.100, 1 of 1 signs agree" in said
    assert better_reading("table1", less).startswith("the reading `residual` fits")


@pytest.mark.usefixtures("little_zoo")
def test_figure_2_names_the_variants_that_are_missing() -> None:
    result = find_item("fig2").run(Context(samples=2, recompute=True))
    assert any("no model of the variant smoothing" in note for note in result.notes)


def test_models_that_add_attention_and_mlp_in_one_sum_are_left_out_with_the_reason() -> None:
    from unsmooth.analysis import Measurement
    from unsmooth.paper.changes import grouped

    found = {
        name: Measurement({}, {}, about_measured(model={"placement": placement}))
        for name, placement in (("plain-a", "pre"), ("plain-b", "parallel-shared"), ("other", "pre"))
    }
    members, left_out = grouped(found)
    assert [len(of) for of in members.values()] == [1]
    assert sorted(left_out.values()) == [["other"], ["plain-b"]]
    assert any("attention and MLP in one sum" in reason for reason, names in left_out.items() if names == ["plain-b"])


@pytest.mark.usefixtures("little_zoo")
@pytest.mark.parametrize("name", ["table1", "table2", "table3"])
def test_all_thirteen_published_columns_are_shown_and_ours_beside_them(name: str) -> None:
    models = ("zoo:cifar100-plain", "ViT-B=zoo:cifar100-sharpening")
    first, columns = find_item(name).run(Context(models=models, samples=1)).tables
    assert {row[0] for row in first.rows} == {"ViT-Ti"}  # a namesake of a published column stands there alone
    assert len(columns.rows) == 13
    rows = {(row[0], row[1]): row[2:8] for row in columns.rows}
    for title, *numbers in zip(
        *(published(name)[key] for key in ("columns", "LayerNorm", "Attention", "MLP")), strict=True
    ):
        found = next(cells for (data, model), cells in rows.items() if f"{data} {model}" == title)
        assert [float(str(cell)) for cell in found[::2]] == pytest.approx(numbers, abs=0.0051)
    ours = [float(str(row[4]).split()[0]) for row in first.rows if row[2] == "chain"]
    shown = [float(str(cell)) for cell in rows["CIFAR100", "ViT-Ti"][1::2]]
    assert shown == pytest.approx(ours, abs=0.0051)
    assert None not in rows["ImageNet", "ViT-B"]
    assert rows["ImageNet", "ViT-L"][1::2] == [None] * 3
