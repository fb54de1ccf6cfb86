"""The accuracies that the text quotes are those of the records."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from unsmooth.paper import Context
from unsmooth.paper.records import Summary, accuracies, load_records

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reproduce.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
ORDER = ("plain", "sharpening", "smoothing")


@pytest.mark.parametrize(("share", "row"), [(1.0, "all data"), (0.5, "50 %"), (0.1, "10 %")])
def test_the_table_of_accuracies_is_that_of_the_records(share: float, row: str) -> None:
    line = next(line for line in PAGE.splitlines() if line.startswith(f"| {row} (n = "))
    counts = [int(n) for n in re.findall(r"\d+", line.partition("(n = ")[2].partition(")")[0])]
    found = accuracies(r for r in load_records(Context(), []) if r.fraction == share)
    have = [len(found[variant]) for variant in ORDER]
    if have != (counts * 3)[:3]:
        pytest.skip(f"the page was written from {counts} runs, now there are {have}: write it again")
    for cell, variant in zip(line.split("|")[2:5], ORDER, strict=True):
        summary = Summary.of([*found[variant].values()])
        assert summary is not None
        assert cell.strip().startswith(str(summary).partition(" (n=")[0] + " ("), cell


def test_the_layers_that_rise_are_those_of_the_records() -> None:
    from unsmooth.paper import find_item

    table = find_item("training").run(Context()).tables[1]
    rows = [row for row in table.rows if row[0] == "10 %"]
    assert all(float(str(row[5])) > 0 for row in rows)  # "the mean rises in every one of the 12 layers"
    assert len(rows) == 12
    always = [row[1] for row in rows if len(set(str(row[6]).split(" of "))) == 1]
    assert f"only layers {' and '.join(map(str, always))} rise in all nine seeds" in " ".join(PAGE.split())


def test_the_readme_quotes_the_records() -> None:
    rows = re.findall(r"^\| (all data|50 %|10 %), (\w+) \| (.+?) \(n = (\d+)\)", README, re.MULTILINE)
    assert rows
    shares = {"all data": 1.0, "50 %": 0.5, "10 %": 0.1}
    for row, variant, quoted, count in rows:
        found = accuracies(r for r in load_records(Context(), []) if r.fraction == shares[row])[variant]
        if len(found) == int(count):  # more runs came after it was written
            assert str(Summary.of([*found.values()])).startswith(f"{quoted} (n="), (row, variant)
