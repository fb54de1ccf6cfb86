"""How eigenvalues and features move in training, from the logs of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from paper.records import CURVES, record, write

from unsmooth.errors import DataError
from unsmooth.paper import Context, find_item


def logged(epoch: int, negative: list[float], ratio: float, accuracy: float) -> dict[str, Any]:
    return {
        "epoch": epoch,
        "spectrum": {"in_minus_one_zero": negative, "positive": [1 - share for share in negative]},
        "smoothing": {**CURVES, "hfc_lfc": [1.0, 1.0, ratio]},
        "test": {"accuracy": accuracy},
    }


def test_training_shows_common_epochs_of_all_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unsmooth.paper.training.runs_figure", lambda panels, *_: panels)
    rows = [logged(e, [0.5, 0.5 + e / 1000], 1 + e / 100, e / 1000) for e in range(25, 325, 25)]
    write(
        tmp_path,
        record("plain", 0, 0.1, 0.33, epochs=rows),
        record("plain", 1, 0.1, 0.35, epochs=[logged(50, [0.7, 0.75], 2.5, 0.15), logged(300, [0.5, 0.9], 5.0, 0.4)]),
        record("smoothing", 0, 0.1, 0.30, epochs=rows[:2]),
        record("plain", 2, 0.5, 0.9),  # its log has no spectrum
    )
    found = find_item("training").run(Context(runs=tmp_path))
    assert "3 runs" in found.label
    epochs, layers, gaps = found.tables
    plain = [row for row in epochs.rows if row[1] == "ViT-Ti"]
    assert [row[2] for row in plain] == [50, 300]
    assert plain[0][3:] == ["0.625 ± 0.141 (n=2)", "0.375 ± 0.141 (n=2)", "2.000 ± 0.707 (n=2)", "0.100 ± 0.071 (n=2)"]
    assert [row[2] for row in epochs.rows if row[1] != "ViT-Ti"] == [25, 50]
    drawn = {
        (quantity, run.name): (list(epochs), values)
        for quantity, runs in found.figures["training"].items()
        for run, (epochs, values) in runs.items()
    }
    assert len(drawn) == 2 * 4
    assert drawn["accuracy", "ViT-Ti, 10 %"] == ([50, 300], [[0.05, 0.3], [0.15, 0.4]])
    epochs_, (values,) = drawn["H in [−1, 0)", "ViT-Ti⁺ (smoothing), 10 %"]
    assert epochs_ == [25, 50]
    assert values == pytest.approx([0.5125, 0.525])
    assert any("± is the standard deviation over seeds" in note for note in found.notes)
    assert layers.rows == [
        ["10 %", 0, "50 → 300", "0.600 ± 0.141 (n=2)", "0.500 ± 0.000 (n=2)", "-0.100", "0 of 2"],
        ["10 %", 1, "50 → 300", "0.650 ± 0.141 (n=2)", "0.850 ± 0.071 (n=2)", "+0.200", "2 of 2"],
    ]
    assert [row[1:] for row in gaps.rows] == [  # the same log: no difference from plain
        ["ViT-Ti⁺ (smoothing)", 25, "+0.00", "×1.00", 1],
        ["ViT-Ti⁺ (smoothing)", 50, "+0.00", "×1.00", 1],
    ]


def test_training_of_a_long_log_shows_six_epochs(tmp_path: Path) -> None:
    write(tmp_path, record("plain", 0, 1.0, 0.6, epochs=[logged(e, [0.5], 1.0, 0.1) for e in range(10, 310, 10)]))
    shown = [row[2] for row in find_item("training").run(Context(runs=tmp_path)).tables[0].rows]
    assert len(shown) == 6
    assert (shown[0], shown[-1]) == (10, 300)


def test_training_without_logs_says_what_to_run(tmp_path: Path) -> None:
    write(tmp_path, record("plain", 0, 0.1, 0.33))
    with pytest.raises(DataError, match="unsmooth train cifar100"):
        find_item("training").run(Context(runs=tmp_path))
