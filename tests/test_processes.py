"""Processes of the tests: what an abort, an error and a second attempt look like."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from processes import ATTEMPT, Aborted, joined, run_twice


def _abort(rank: int, folder: str, times: int) -> None:
    with joined(rank, folder):
        if rank == 1 and int(os.environ[ATTEMPT]) < times:
            os.write(2, b"what the library said")
            os.abort()
    Path(folder, str(rank)).touch()


def test_an_abort_is_tried_again_in_a_new_group(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run_twice(_abort, str(tmp_path), 1)
    assert {"0", "1"} <= {path.name for path in tmp_path.iterdir()}
    assert "attempt 1: process 1 terminated with signal SIGABRT" in capfd.readouterr().err


def test_aborts_without_end_are_told_with_what_was_said(tmp_path: Path) -> None:
    with pytest.raises(Aborted, match="in each of 3 attempts; they said: what the library said"):
        run_twice(_abort, str(tmp_path), 3)


def _fail(rank: int, folder: str) -> None:
    Path(folder, f"{rank}-{os.environ[ATTEMPT]}").touch()
    raise ValueError("an error of Python's")


def test_an_error_is_raised_at_once(tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"an error of Python's"):
        run_twice(_fail, str(tmp_path))
    assert not list(tmp_path.glob("*-1"))
