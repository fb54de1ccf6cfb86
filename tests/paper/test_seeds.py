"""Two kinds of run over seeds, as `unsmooth compare` shows them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from paper.records import record
from scipy import stats
from typer.testing import CliRunner

from unsmooth.cli.app import app
from unsmooth.errors import CheckpointError, DataError
from unsmooth.paper.seeds import find_records, over_seeds

A, B = np.array([0.30, 0.32, 0.31, 0.33]), np.array([0.31, 0.33, 0.33, 0.336])


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for variant, values in (("plain", A), ("sharpening", B)):
        for seed, value in enumerate(values):
            folder = tmp_path / f"{variant}-seed{seed}"
            folder.mkdir()
            (folder / "record.json").write_text(json.dumps(record(variant, seed, 0.1, value)), encoding="utf-8")
    return tmp_path


def test_folders_of_runs_are_paired_by_seed(runs: Path) -> None:
    result = over_seeds(f"{runs}/plain-*", f"{runs}/sharpening-*")
    assert result is not None
    row = result.tables[0].rows[0]
    interval = stats.ttest_rel(B, A).confidence_interval(0.95)
    expected = f"{100 * (B - A).mean():+.2f} ({100 * interval.low:+.2f} to {100 * interval.high:+.2f})"
    assert row[:4] == ["accuracy in %", "31.50 ± 1.29 (n=4)", "32.65 ± 1.14 (n=4)", expected]
    assert "n = 4" in result.notes[0]


def test_what_is_no_record_is_left_to_others(runs: Path, tmp_path: Path) -> None:
    other = tmp_path / "measured.json"
    other.write_text("{}", encoding="utf-8")
    assert find_records(str(other)) == []
    assert over_seeds(str(other), "zoo:cifar100-plain") is None
    with pytest.raises(DataError, match="expected the records of training runs"):
        over_seeds(f"{runs}/plain-*", str(other))


def test_runs_of_several_kinds_are_no_seeds_of_one(runs: Path) -> None:
    with pytest.raises(DataError, match="these runs are of several kinds"):
        over_seeds(f"{runs}/plain-*", f"{runs}/*-seed*")


def test_a_record_that_lacks_something_is_named(runs: Path) -> None:
    path = runs / "plain-seed0" / "record.json"
    path.write_text(json.dumps({"schema": "unsmooth-record/1"}), encoding="utf-8")
    with pytest.raises(CheckpointError, match="not a whole record: its run is None"):
        find_records(str(path))


def test_the_command_shows_a_claim_or_json(runs: Path) -> None:
    words = ["compare", f"{runs}/plain-*", f"{runs}/sharpening-*"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "Over seeds" in done.output
    assert "plain, 10 %" in " ".join(done.output.split())
    plain = json.loads(CliRunner().invoke(app, [*words, "--json"]).output)
    assert plain["tables"][0]["rows"][0][0] == "accuracy in %"
    refused = CliRunner().invoke(app, [*words, "--out", str(runs / "page.html")])
    assert refused.exit_code != 0
