"""What `--json` prints: JSON for every reader, with the keys that docs/api.md names."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from page.course_cases import FALL, sharp
from page.courses import Known

from unsmooth.analysis.measuring.cells import Cell
from unsmooth.analysis.track import Checkpoint
from unsmooth.cli import check, track
from unsmooth.cli.output import FileOptions
from unsmooth.paper import Result

REPOSITORY = Path(__file__).parents[2]
RESULTS = REPOSITORY / "zoo" / "results"


def strictly(text: str) -> Any:
    """As a reader does that knows no NaN."""

    def refuse(word: str) -> None:
        raise ValueError(word)

    return json.loads(text, parse_constant=refuse)


def documented(command: str) -> set[str]:
    """The keys of one row of the table."""
    page = (REPOSITORY / "docs" / "api.md").read_text(encoding="utf-8")
    (row,) = re.findall(rf"^\| `{command}` \| (.*) \|$", page, re.MULTILINE)
    return set(re.findall(r"`([a-z_]+)`", row))


def common() -> set[str]:
    page = (REPOSITORY / "docs" / "api.md").read_text(encoding="utf-8")
    (keys,) = re.findall(r"begin with the keys (.*?)\. `--out", page, re.DOTALL)
    return set(re.findall(r"`([a-z_]+)`", keys))


@pytest.mark.parametrize(("command", "file", "inside"), [
    ("measure", "models/crammed-bert-plain/measurement.json", {"square"}),
    ("explain", "models/crammed-bert-plain/explanation.json", set()),
    ("attribute", "models/crammed-bert-plain/attribution.json", {"carriers"}),
    ("sweep", "sweeps/mpnet-base.json", {"points"}),
])  # fmt: skip
def test_results_have_the_documented_keys(command: str, file: str, inside: set[str]) -> None:
    found = set(strictly((RESULTS / file).read_text(encoding="utf-8")))
    assert common() <= found
    assert documented(command) - inside == found - common() - {"per_sample"}


def test_tables_have_the_documented_keys() -> None:
    measurement = Known("m", sharp(FALL)).subject().measurement
    checkpoint = Checkpoint("a", 1, measurement, {0: 0.5})
    assert set(track._plain(checkpoint)) == documented("track")
    assert set(check._plain([], [], 1)) == documented("check")
    assert {"name", *Result("label").to_json()} == documented("reproduce")


def test_what_is_not_a_number_is_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    subject = Known("m", sharp(FALL)).subject()
    subject.measurement.cells[Cell("blocks.5.post", "hfc_lfc", "all")].mean = float("nan")
    track._tell([Checkpoint("a", 1, subject.measurement, {0: float("inf")})], Path("page.html"), True)
    (found,) = strictly(capsys.readouterr().out)
    assert found["ends"][0]["metric"] == "hfc_lfc"
    assert [found["ends"][0]["last"], found["negative"]] == ["nan", {"0": "inf"}]
    output = FileOptions(None, True)
    output.finish(Result("label", about={"value": float("-inf")}).to_json, lambda console: None)
    assert strictly(capsys.readouterr().out)["about"] == {"value": "-inf"}


def test_json_is_printed_in_one_place() -> None:
    folder = REPOSITORY / "src" / "unsmooth" / "cli"
    assert [path.name for path in folder.glob("*.py") if "json.dumps" in path.read_text(encoding="utf-8")] == [
        "output.py"
    ]
