"""`unsmooth sweep` from the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sweeping.test_sweep import folder

from unsmooth.analysis.sweep import Sweep


def test_a_sweep_is_printed_saved_and_drawn(cli: Callable[..., Any], tiny: list[str], tmp_path: Path) -> None:
    out, drawn = tmp_path / "sweep.json", tmp_path / "figures"
    asked = ("--data", "bundled", "--task", f"knn:{folder(tmp_path / 'data')}", "--samples", 2, "--task-samples", 3,
             "--edit", "scale=0.5", "--strengths", 1, "--layers", "0:1", "--out", out, "--figures", drawn)  # fmt: skip
    said = cli("sweep", *tiny, "--model-option", "num_classes=0", *asked).stdout
    for words in ("scale=0.5", "k-NN accuracy in share", "3 samples", "price", f"written to {out}"):
        assert words in said
    found = Sweep.from_json(json.loads(out.read_text()))
    assert found.about.settings.layers == "0:1"
    assert [point.strength for point in found.edits[0].points] == [0, 1]
    assert (drawn / "sweep.svg").exists()


def test_what_makes_no_sense_is_said_and_nothing_written(
    cli: Callable[..., Any], tiny: list[str], tmp_path: Path
) -> None:
    out, data = tmp_path / "x.json", folder(tmp_path / "data")
    given = ("sweep", *tiny, "--data", "bundled", "--samples", 2, "--task-samples", 2, "--out", out)
    for more, said in (
        (("--task", f"knn:{data}", "--strengths", "much"), "expected numbers with commas"),
        (("--task", f"knn:{data}", "--edit", "lunch"), "KEY=VALUE"),
        (("--task", "lunch"), "unknown task"),
    ):
        assert said in cli(*given, *more, code=1).stderr
    assert not out.exists()
