"""`unsmooth sweep` from the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from page.charts.test_could import sweep as made_up
from small_models import colour_folder

from unsmooth.analysis.sweep import Sweep


def test_a_sweep_is_printed_saved_and_drawn(cli: Callable[..., Any], tiny: list[str], tmp_path: Path) -> None:
    out, drawn = tmp_path / "sweep.json", tmp_path / "figures"
    task = f"knn:{colour_folder(tmp_path / 'data')}"
    asked = ("--data", "bundled", "--task", task, "--samples", 2, "--task-samples", 3,
             "--edit", "scale=0.5", "--edit", "head_scale=0,heads=[0,1]",
             "--strengths", 1, "--layers", "0:1", "--out", out, "--figures", drawn)  # fmt: skip
    said = cli("sweep", *tiny, "--model-option", "num_classes=0", *asked).stdout
    for words in ("scale=0.5", "k-NN accuracy (share, higher is better)", "3 samples", "price", f"written to {out}"):
        assert words in said
    found = Sweep.from_json(json.loads(out.read_text()))
    assert [swept.name for swept in found.edits] == ["scale=0.5", "head_scale=0, heads=[0, 1]"]
    assert found.about.settings.layers == "0:1"
    assert [point.strength for point in found.edits[0].points] == [0, 1]
    assert (drawn / "sweep.svg").exists()


def test_what_makes_no_sense_is_said_and_nothing_written(
    cli: Callable[..., Any], tiny: list[str], tmp_path: Path
) -> None:
    out, data = tmp_path / "x.json", colour_folder(tmp_path / "data")
    given = ("sweep", *tiny, "--data", "bundled", "--samples", 2, "--task-samples", 2, "--out", out)
    for more, said in (
        (("--task", f"knn:{data}", "--strengths", "much"), "expected numbers with commas"),
        (("--task", f"knn:{data}", "--edit", "lunch"), "KEY=VALUE"),
        (("--task", f"knn:{data}", "--edit", "lunch=1"), "unknown option of an edit 'lunch'"),
        (("--task", "lunch"), "unknown task"),
    ):
        assert said in cli(*given, *more, code=1).stderr
    assert not out.exists()


def test_a_report_takes_the_sweep_beside_it(cli: Callable[..., Any], tiny: list[str], tmp_path: Path) -> None:
    made = made_up([(1.0, 3.0, -0.2, -0.25, -0.15)])
    asked = (*tiny, "--data", "bundled", "--samples", 2, "--explain-inputs", 0, "--out", tmp_path / "page.html")
    made.save(tmp_path / "page.sweep.json")  # of another model: left alone
    cli("report", *asked)
    assert "Not measured for this model" in (tmp_path / "page.html").read_text()
    said = cli("report", *asked, "--sweep", tmp_path / "page.sweep.json", code=1).stderr
    assert "the sweep is of zoo:x" in said
    about = replace(made.about, model=replace(made.about.model, reference="timm:vit_tiny_patch16_224"))
    Sweep(made.edits, made.task, about).save(tmp_path / "page.sweep.json")
    cli("report", *asked)
    assert "raises HFC/LFC" in (tmp_path / "page.html").read_text()
