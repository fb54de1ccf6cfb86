"""Every trained variant beside plain, from the records."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from paper.records import SHORT, record, write

from unsmooth.errors import DataError
from unsmooth.paper import Context, find_item


def ended(ratio: float, saturated: float | None = None, condition: float = 1.0) -> list[dict[str, Any]]:
    """A log of two epochs, of which only the last one counts."""
    last: dict[str, Any] = {"epoch": 300, "smoothing": {"hfc_lfc": [9.0, ratio]}}
    if saturated is not None:
        last["control"] = {"saturated": saturated, "condition": condition}
    return [{"epoch": 150, "smoothing": {"hfc_lfc": [7.0, 7.0]}}, last]


def test_variants_stand_beside_plain_of_the_same_data_the_best_first(tmp_path: Path) -> None:
    write(
        tmp_path,
        record("plain", 0, 0.1, 0.30, epochs=ended(2.0)),
        record("plain", 1, 0.1, 0.32, epochs=ended(3.0)),
        record("sharpening-eigen", 0, 0.1, 0.29, epochs=ended(4.0, 0.4, 20.0)),
        record("sharpening-eigen", 1, 0.1, 0.30, epochs=ended(5.0, 0.6, 30.0)),
        record("contranorm", 0, 0.1, 0.35, epochs=[]),
        record("smoothing", 0, 1.0, 0.60, epochs=ended(0.5, 0.0, 6.0)),
    )
    found = find_item("variants").run(Context(runs=tmp_path))
    assert "6 runs" in found.label
    assert found.tables[0].rows == [
        ["100 %", "smoothing", "60.00 (n=1)", "", "", "0.50", "0 %", "6"],
        ["10 %", "contranorm", "35.00 (n=1)", "+5.00", "", None, None, None],  # against plain of the same seed
        ["10 %", "plain", "31.00 ± 1.41 (n=2)", None, None, "2.50", None, None],
        ["10 %", "sharpening-eigen", "29.50 ± 0.71 (n=2)", "-1.50 (-7.85 to +4.85)", "0.20", "4.50", "50 %", "30"],
    ]


def test_each_recipe_has_a_table_and_a_plain_of_its_own(tmp_path: Path) -> None:
    write(
        tmp_path,
        record("plain", 0, 0.1, 0.30),
        record("contranorm", 0, 0.1, 0.35),
        record("plain", 0, 0.1, 0.20, run="short", recipe=SHORT),
        record("contranorm", 0, 0.1, 0.21, run="short fix", recipe=SHORT),
    )
    found = find_item("variants").run(Context(runs=tmp_path))
    assert found.label.endswith("from the records of 2 runs of cifar100 and 2 runs of cifar100-fast")
    assert [table.title.rpartition(", ")[2] for table in found.tables] == ["cifar100", "cifar100-fast"]
    assert [table.rows[0][1:4] for table in found.tables] == [
        ["contranorm", "35.00 (n=1)", "+5.00"], ["contranorm", "21.00 (n=1)", "+1.00"],
    ]  # fmt: skip
    assert set(found.about) == {"plain-0.1-0", "contranorm-0.1-0", "short", "short fix"}


def test_runs_with_another_start_of_psi_have_rows_of_their_own(tmp_path: Path) -> None:
    write(
        tmp_path,
        record("sharpening-eigen", 0, 0.1, 0.31),
        record("sharpening-eigen", 0, 0.1, 0.25, run="wide", std=1.0),
        record("plain", 0, 0.1, 0.9, same_steps=True),
    )
    found = find_item("variants").run(Context(runs=tmp_path))
    assert [row[1] for row in found.tables[0].rows] == ["sharpening-eigen", "sharpening-eigen (ψ's std 1)"]
    assert any(note.startswith("left out: 1 run with a changed recipe") for note in found.notes)


def test_a_singular_matrix_is_the_worst_of_all_seeds(tmp_path: Path) -> None:
    singular = record("sharpening", 1, 0.1, 0.3, epochs=ended(1.0, 0.0, math.nan))
    write(tmp_path, record("sharpening", 0, 0.1, 0.3, epochs=ended(1.0, 0.0, 9.0)), singular)
    assert find_item("variants").run(Context(runs=tmp_path)).tables[0].rows[0][-1] == "nan"


def test_without_records_it_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="unsmooth train cifar100 --variant"):
        find_item("variants").run(Context(runs=tmp_path))


def test_many_variants_are_corrected_together_and_only_clear_ones_are_claimed(tmp_path: Path) -> None:
    plain = (0.300, 0.310, 0.305)
    write(
        tmp_path,
        *(record("plain", seed, 0.1, a) for seed, a in enumerate(plain)),
        *(record("worse", seed, 0.1, a - 0.10 + 0.001 * (seed == 1)) for seed, a in enumerate(plain)),
        *(record("alike", seed, 0.1, a + (0.004, -0.003, 0.001)[seed]) for seed, a in enumerate(plain)),
    )
    notes = find_item("variants").run(Context(runs=tmp_path)).notes
    said = [note for note in notes if note.startswith("cifar100, 10 %: ")]
    assert len(said) == 1
    assert said[0].startswith("cifar100, 10 %: worse is below plain (-9.97 points")
    assert "Holm for 2 comparisons" in said[0]
