"""What the text quotes of records and results is what they say: `python docs/records.py` writes it again."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from unsmooth.paper import Context

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def writer() -> ModuleType:
    """docs/records.py."""
    spec = importlib.util.spec_from_file_location("records_page", ROOT / "docs" / "records.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = list(sys.path)
    spec.loader.exec_module(module)
    sys.path[:] = before
    return module


def test_every_text_is_written_from_the_records(writer: ModuleType) -> None:
    for path, text in writer.pages().items():
        assert text == (ROOT / path).read_text(encoding="utf-8"), f"{path} is older than the records: docs/records.py"


def test_the_tables_and_pictures_of_an_answer_are_on_the_page(writer: ModuleType) -> None:
    from unsmooth.figures import Drawing
    from unsmooth.paper import Result

    table = {"title": "Fixes", "columns": ["variant", "minus plain"], "rows": [["gfsa", "-0.50"], ["plain", None]]}
    finding = {
        "name": "fixes", "question": "Do they?", "asked by": "ours", "status": "open", "n": "3 pairs", "answer": "No.",
        "command": "unsmooth reproduce findings", "settle": "", "tables": [table],
    }  # fmt: skip
    figures = {"findings-fast": Drawing(1, 1), "findings-fast-fixes": Drawing(1, 1)}
    result = Result("From 3 runs", figures=figures, about={"findings": [finding]})
    lines = writer.findings.markdown(result).splitlines()
    assert lines[0] == "![Accuracy of every variant minus plain in the short recipe](images/findings-fast.svg)"
    assert "![Do they?](images/findings-fast-fixes.svg)" in lines
    start = lines.index("Fixes:")
    assert lines[start + 2 : start + 6] == [
        "| variant | minus plain |", "| --- | --- |", "| gfsa | −0.50 |", "| plain |  |",
    ]  # fmt: skip


def test_changed_numbers_are_written_again(writer: ModuleType) -> None:
    text = "| 10 %, plain | 1.00 ± 0.75 (n = 2) | 0 |\n| other | 1 |\n"
    row, other = writer.readme(text).splitlines()
    plain = writer.ours(0.1)["plain"]
    assert row == f"| 10 %, plain | {writer.bare(plain)} (n = {plain.count}) | 32.47 ± 0.9 |"
    assert other == "| other | 1 |"
    assert writer.recipe("    - 50 %: 1, 2 % (three)").startswith("    - 50 %: 57.33, 57.13, 55.30 % (")
    page = writer.between("a\n<!-- begin x: python docs/records.py -->\nold\n<!-- end x -->\nb", "x", "new")
    assert page == "a\n<!-- begin x: python docs/records.py -->\nnew\n<!-- end x -->\nb"
    with pytest.raises(SystemExit, match="no part called y"):
        writer.between(page, "y", "new")


def test_the_layers_that_rise_are_those_of_the_records() -> None:
    from unsmooth.paper import find_item

    table = find_item("training").run(Context()).tables[1]
    rows = [row for row in table.rows if row[0] == "10 %"]
    assert all(float(str(row[5])) > 0 for row in rows)  # "the mean rises in every one of the 12 layers"
    assert len(rows) == 12
    always = [row[1] for row in rows if len(set(str(row[6]).split(" of "))) == 1]
    page = (ROOT / "docs" / "reproduce.md").read_text(encoding="utf-8")
    assert f"only layers {' and '.join(map(str, always))} rise in all nine seeds" in " ".join(page.split())


def test_what_is_said_of_the_exponent_is_what_the_generated_tables_say() -> None:
    """The two tables of docs/disagree.md that are written by hand hold rows of `unsmooth reproduce explains`."""
    text = (ROOT / "docs" / "disagree.md").read_text(encoding="utf-8")
    made = text[text.index("<!-- begin explains") : text.index("<!-- end explains")]
    correlations, signs = ({row[0]: row[1:] for row in _rows(made) if len(row) == size} for size in (7, 8))
    rows = _rows(text.replace(made, ""))
    whole = {"DINOv2": "DINOv2 ViT-S/14", "SmolLM2": "SmolLM2 135M", "ALBERT": "ALBERT (reactions)"}
    short = [row for row in rows if len(row) == 4 and row[3].endswith(")") and row[1].endswith("%")]
    assert len(short) == 12
    for model, right, guess, correlation in short:
        name, _, rest = model.partition(", ")
        name = whole.get(name, name) + (f", {rest}" if rest.startswith("without") else "")
        column = int(rest == "small-step γ")
        said = [guess, right, correlation.replace(" ", "")]
        quoted = [signs[name][0], signs[name][1 + column].rstrip("*"), correlations[name][column].replace(" ", "")]
        assert [cell.replace(" ", "") for cell in said] == quoted, model
    trained = {"": "CIFAR-100 10 %", "all data": "CIFAR-100"}
    kinds = [row for row in rows if len(row) == 7 and row[0].split(",")[0] in ("plain", "sharpening", "smoothing")]
    assert len(kinds) == 6
    for row in kinds:
        kind, _, data = row[0].partition(", ")
        assert row[5:] == correlations[f"{trained[data]}, {kind}"][:2], row[0]


def _rows(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
