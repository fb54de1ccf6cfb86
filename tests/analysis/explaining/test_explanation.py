"""An explanation gives back what it was made of, from memory and from its file."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from results import about_explained

from unsmooth.analysis import Explanation, load_explanation
from unsmooth.analysis.explaining.rows import COLUMNS
from unsmooth.errors import CheckpointError

LAYER_VALUES = torch.tensor([0.5 - 2j, 1234.56789 + 0j], dtype=torch.complex128)
HEAD_VALUES = torch.tensor([[1 + 3j], [2e-9 - 4j]], dtype=torch.complex128)


@pytest.fixture
def made() -> Explanation:
    """Two inputs, a layer of two heads and one that adds nothing, and numbers that JSON has no word for."""
    layers = [
        {"layer": 0, "input": 0, "exponent": 1.0, "small_step": 1.0, "measured_ratio": -2.0, "measured_hfc": 2.0},
        {"layer": 0, "input": 3, "exponent": -math.inf, "small_step": -1.0, "measured_ratio": 1.0, "measured_hfc": 1.0},
        {"layer": 1, "input": 3, "exponent": 1.0, "small_step": 1.0, "measured_ratio": 0.0, "measured_hfc": 0.0},
    ]
    layers = [{**dict.fromkeys(COLUMNS["layer_rows"][1], 0.0), **row} for row in layers]
    heads = [{"layer": 0, "head": head, "input": 0, "kind": "inf-like", "gap": math.nan} for head in (0, 1)]
    heads = [{**dict.fromkeys(COLUMNS["head_rows"][1], 0.0), **row} for row in heads]
    weights = [{"layer": 0, "head": head, "folded": True, "condition": math.inf} for head in (-1, 0, 1)]
    weights = [{**dict.fromkeys(COLUMNS["weight_rows"][1], 0.0), **row} for row in weights]
    spectra = [{"layer": 0, "folded": True, "layer_values": LAYER_VALUES, "head_values": HEAD_VALUES}]
    return Explanation(layers, heads, weights, spectra, about_explained(), partial=True, notes=["one"])


def test_a_file_gives_back_every_row_note_and_eigenvalue(made: Explanation, tmp_path: Path) -> None:
    path = made.save(tmp_path / "e.json")
    text = path.read_text(encoding="utf-8")
    written = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert (written["inputs"], written["partial"], text[-1]) == (2, True, "\n")
    again = load_explanation(path)
    assert (again.partial, again.notes, again.about, again.inputs) == (True, ["one"], made.about, 2)
    for ours, theirs in (
        (again.frame(), made.frame()),
        (again.head_frame(), made.head_frame()),
        (again.weight_frame(), made.weight_frame()),
        (again.spectrum_frame(), made.spectrum_frame()),
    ):
        pd.testing.assert_frame_equal(ours, theirs, rtol=1e-6, atol=0)  # seven digits of an eigenvalue are kept


@pytest.mark.parametrize(
    ("table", "change", "message"),
    [
        ("layer_rows", lambda rows: rows.clear(), r"layer_rows must be a list of rows, got \[\]"),
        ("spectra", lambda rows: rows.clear(), r"spectra must be a list of rows, got \[\]"),
        ("weight_rows", lambda rows: rows.append(rows[0]), "there twice: layer 0, head -1, folded True"),
        ("layer_rows", lambda rows: rows.append(rows[1]), "there twice: layer 0, input 3"),
        ("layer_rows", lambda rows: rows[1].pop("step"), r"layer_rows\[1\] lacks 'step'"),
        ("layer_rows", lambda rows: rows[0].update(exponent=[1]), r"layer_rows\[0\].exponent must be a number, got \["),
        ("layer_rows", lambda rows: rows[0].update(policy=3), r"layer_rows\[0\].policy must be text, got 3"),
        (
            "layer_rows",
            lambda rows: rows[0].update(layer="0"),
            r"layer_rows\[0\].layer must be a whole number, got '0'",
        ),
        ("weight_rows", lambda rows: rows[0].update(folded=1), r"weight_rows\[0\].folded must be true or false, got 1"),
        ("head_rows", lambda rows: rows[1].update(gap="%s"), r"head_rows\[1\].gap must be a number, got '%s'"),
        ("spectra", lambda rows: rows[0].update(layer_values=1), r"layer_values must be a list of eigenvalues, got 1"),
    ],
)
def test_a_row_that_was_changed_is_named(
    made: Explanation, tmp_path: Path, table: str, change: Callable[[list[dict[str, Any]]], object], message: str
) -> None:
    """Any of them ended in an error of pandas' or Python's, in whatever used it first."""
    content = made.to_json()
    change(content[table])
    (tmp_path / "e.json").write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match=message):
        load_explanation(tmp_path / "e.json")


def test_frames_have_one_row_for_each_thing(made: Explanation) -> None:
    assert made.frame()["input"].tolist() == [0, 3, 3]
    assert made.head_frame()["head"].tolist() == [0, 1]
    assert made.weight_frame()["head"].tolist() == [-1, 0, 1]
    values = [*LAYER_VALUES.tolist(), *HEAD_VALUES.flatten().tolist()]
    expected = {"layer": 0, "head": [-1, -1, 0, 1], "folded": True}
    expected |= {"real": [v.real for v in values], "imag": [v.imag for v in values]}
    pd.testing.assert_frame_equal(made.spectrum_frame(), pd.DataFrame(expected))


def test_the_exponent_is_held_against_the_ratio_unless_columns_are_named(made: Explanation) -> None:
    found = made.agreement()
    assert (found.count, found.only_predicted_up) == (1, 1)  # an infinite exponent is no prediction
    other = made.agreement("small_step", "measured_hfc")
    assert (other.count, other.both_up, other.only_predicted_up, other.only_measured_up) == (2, 1, 0, 1)


def test_an_explanation_is_whole_unless_said_otherwise() -> None:
    assert not Explanation([], [], [], [], about_explained()).partial


def test_an_explanation_without_spectra_overshoots_nowhere() -> None:
    from dataclasses import replace

    from small_models import images, vit

    import unsmooth

    found = unsmooth.explain(vit(), images(1))
    assert replace(found, spectra=[]).overshooting() == {}
    assert replace(found, spectra=[]).unpromised() == {}
