"""Files of every kind and version, what results say of themselves, and how they look."""

from __future__ import annotations

import copy
import json
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from results import view_tokens
from small_models import bert, images, vit

import unsmooth
from unsmooth.analysis import Explanation, Measurement, TokenView, load, load_explanation, load_measurement
from unsmooth.analysis.about import About, Origin
from unsmooth.analysis.measuring.cells import Cell
from unsmooth.errors import CheckpointError, UnsmoothError
from unsmooth.metrics.registry import METRICS

FILES = Path(__file__).parent / "files"
OLD_MEASUREMENT, OLD_EXPLANATION = FILES / "measurement-0.1.json", FILES / "explanation-0.1.json"


def test_a_measurement_of_version_0_1_is_read_with_every_number() -> None:
    found, plain = load(OLD_MEASUREMENT), json.loads(OLD_MEASUREMENT.read_text())
    assert isinstance(found, Measurement)
    for row in plain["cells"]:
        cell = found.cells[Cell(row["point"], row["metric"], row["tokens"])]
        assert (cell.count, cell.mean, cell.square) == (row["count"], row["mean"], row["square"])
    assert found.about.model.reference == plain["model"]["reference"] == "timm:vit_tiny_patch16_224"
    assert (found.about.model.class_name, found.about.model.layers) == ("VisionTransformer", 2)
    assert (found.about.data.reference, found.about.data.batches) == ("random", 2)
    assert found.about.settings.tokens == ("all", "patches")
    assert found.definition("hfc_lfc", "all").startswith(plain["definitions"]["metrics"]["hfc_lfc"])
    assert found.per_sample is not None
    assert len(found.per_sample) == 3
    assert found.merge(found).samples == 6


def test_a_placement_that_no_model_has_is_refused(tmp_path: Path) -> None:
    """The table of a measurement that was changed ended in a KeyError."""
    content = json.loads(OLD_MEASUREMENT.read_text())
    content["model"]["placement"] = "hfc_lfc"
    (tmp_path / "m.json").write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match="model.placement must be one of 'pre', 'post', .*, got 'hfc_lfc'"):
        load_measurement(tmp_path / "m.json")


def test_outliers_without_positions_are_refused(tmp_path: Path) -> None:
    """The sentence about outliers ended in an IndexError."""
    content = unsmooth.measure(vit(), images(1)).to_json()
    content["extremes"]["blocks.0.post"]["positions"] = {}
    (tmp_path / "m.json").write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match="2 samples have a farthest token, at 0 positions"):
        load_measurement(tmp_path / "m.json")


def test_an_explanation_of_version_0_1_is_read_and_saved_as_one_of_today(tmp_path: Path) -> None:
    found, plain = load(OLD_EXPLANATION), json.loads(OLD_EXPLANATION.read_text())
    assert isinstance(found, Explanation)
    assert found.layers == plain["layer_rows"]
    assert found.about.definitions.columns == plain["definitions"]
    assert found.about.settings.layers == (0, 1)
    assert (found.about.model.heads, found.about.model.causal) == (2, False)
    again = load(found.save(tmp_path / "e.json"))
    assert isinstance(again, Explanation)
    assert (again.about, again.layers, again.heads) == (found.about, found.layers, found.heads)


def test_one_loader_tells_the_kinds_apart(tmp_path: Path) -> None:
    model = vit()
    view = view_tokens(model, images(1)[0])
    measured, explained = unsmooth.measure(model, images(1)), unsmooth.explain(model, images(1), spectra=0)
    kinds = {Measurement: measured, Explanation: explained, TokenView: view}
    for kind, result in kinds.items():
        found = load(result.save(tmp_path / f"{kind.__name__}.json"))
        assert type(found) is kind
        assert found.about == result.about
    with pytest.raises(CheckpointError, match="another kind: expected Explanation, got Measurement"):
        load_explanation(tmp_path / "Measurement.json")
    with pytest.raises(CheckpointError, match="another kind: expected Measurement, got TokenView"):
        load_measurement(tmp_path / "TokenView.json")


def damaged() -> list[Any]:
    """A file of version 0.1 with one thing wrong at a time."""
    whole = json.loads(OLD_MEASUREMENT.read_text())
    found = []
    for path, value in [
        (("model",), None), (("model", "layers"), "two"), (("model", "layers"), True), (("model", "class"), 3),
        (("settings", "metrics"), "hfc_lfc"), (("settings", "tokens"), [1]), (("settings", "points"), ["nowhere"]),
        (("definitions", "metrics"), {}), (("definitions", "metrics", "hfc_lfc"), None), (("versions",), []),
        (("cells",), []), (("cells", 0, "mean"), "many"), (("cells", 0, "count"), None), (("cells", 0, "point"), {}),
        (("changes",), 7), (("notes",), None), (("created",), 2026), (("data", "batches"), "2"),
        (("cells", 0, "count"), -1), (("cells", 0, "count"), 2.5), (("cells", 0, "square"), -1.0),
        (("changes", 0, "reading"), "other"), (("changes", 0, "tokens"), "%s"), (("changes", 0, "kind"), "Pooling"),
        (("model", "layers"), 1),
    ]:  # fmt: skip
        plain = copy.deepcopy(whole)
        inside: Any = plain
        for key in path[:-1]:
            inside = inside[key]
        inside[path[-1]] = value
        found.append(pytest.param(plain, id=".".join(map(str, path))))
    return found


@pytest.mark.parametrize("plain", damaged())
def test_a_damaged_file_is_an_error_that_names_it(plain: Any, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps(plain))
    with pytest.raises(CheckpointError, match=r"run\.json was cut or changed after it was written"):
        load(path)


def test_what_a_later_version_adds_is_left_out(tmp_path: Path) -> None:
    plain = json.loads(OLD_MEASUREMENT.read_text())
    plain["model"]["colour"] = plain["mood"] = "blue"
    path = tmp_path / "run.json"
    path.write_text(json.dumps(plain))
    assert load(path).about == load(OLD_MEASUREMENT).about


def test_what_a_result_says_of_itself_cannot_be_changed_by_accident() -> None:
    about = unsmooth.measure(vit(), images(1), origin=Origin(model="mine", command="python x.py")).about
    assert isinstance(about, About)
    assert (about.model.name, about.command, about.model.heads) == ("mine", "python x.py", 3)
    with pytest.raises(FrozenInstanceError):
        about.model.layers = 3  # type: ignore[misc]


@pytest.mark.parametrize("make", [unsmooth.measure, unsmooth.explain, unsmooth.attribute])
def test_two_results_are_one_only_where_they_are_the_same_object(make: Any) -> None:
    one, two = (make(vit(), [images()]) for _ in range(2))
    assert one == one
    assert one != two
    assert len({one, two}) == 2


def test_merging_adds_up_the_batches() -> None:
    model, data = vit(), images(3)
    whole, parts = unsmooth.measure(model, data), [unsmooth.measure(model, data[:1]), unsmooth.measure(model, data[1:])]
    merged = parts[0].merge(parts[1])
    assert (merged.about.data.batches, merged.samples) == (whole.about.data.batches, whole.samples) == (3, 6)


def test_merging_other_points_or_definitions_is_refused() -> None:
    a, b = unsmooth.measure(vit(), images(1)), unsmooth.measure(vit(), images(1), points="residual")
    with pytest.raises(UnsmoothError, match="only if they hold the same points"):
        a.merge(b)
    fewer = replace(a, changes=dict(list(a.changes.items())[1:]))
    with pytest.raises(UnsmoothError, match="only if they hold the same points"):
        a.merge(fewer)


@pytest.fixture
def printing() -> Any:
    """pandas as on a terminal of 80 columns."""
    with pd.option_context("display.width", 80, "display.max_columns", 0):
        yield


def narrow(frame: pd.DataFrame) -> str:
    shown = repr(frame)
    assert max(map(len, shown.splitlines())) <= 80, shown
    assert "..." not in shown.splitlines()[0], shown
    assert "\\" not in shown.splitlines()[0], shown
    return shown


@pytest.mark.usefixtures("printing")
def test_frames_show_their_numbers_on_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    wide = [m for m in METRICS if m != "dirichlet"]  # whose values have no bounded width
    found = unsmooth.measure(bert(12), [{"input_ids": torch.randint(50, (3, 9))}], wide, "all,no-outliers")
    frame = found.frame()
    assert f"{frame['mean'].iloc[0]:.6f}"[:5] in narrow(frame)
    assert frame.attrs["samples"] == 3
    assert "hfc_lfc" in frame.attrs["definitions"]["metrics"]
    narrow(found.change_by_kind("chain"))
    explained = unsmooth.explain(vit(), images(2), spectra=2)
    for table in (explained.by_layer(), explained.predictions()):
        narrow(table)
    assert {"layer", "exponent", "measured_ratio", "agree"} <= set(explained.by_layer().columns)
    assert {"predictor", "accuracy", "majority", "spearman"} <= set(explained.predictions().columns)


def test_a_result_introduces_itself_in_a_few_lines() -> None:
    model = vit()
    measured = unsmooth.measure(model, images(3), "paper,rankme", "all,no-outliers", origin=Origin(data="<b>noise"))
    first = measured.cells[Cell("embed", "hfc_lfc", "all")].mean
    for said in (
        repr(measured),
        repr(unsmooth.explain(model, images(1), spectra=0)),
        repr(view_tokens(model, images(1)[0])),
    ):
        assert len(said) < 1200
        assert max(map(len, said.splitlines())) <= 100
    assert f"{first:.4g}" in repr(measured)
    html = measured._repr_html_()
    assert "&lt;b&gt;noise" in html
    assert f"{first:.4g}" in html
    assert "<b>" not in html
