"""Files are whole or absent, and foreign files are refused by name."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from unsmooth.errors import CheckpointError, OutputError
from unsmooth.sources.files import check_writable, read_json, write_atomically


def test_a_failed_write_leaves_the_old_file_and_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = write_atomically(tmp_path / "run.json", "old")

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OutputError, match=r"run\.json cannot be written \(No space left on device\)"):
        write_atomically(target, "new")
    assert target.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["run.json"]


def test_a_place_can_be_asked_for_before_the_work(tmp_path: Path) -> None:
    check_writable(tmp_path / "new" / "folder" / "run.json")
    assert not list(tmp_path.iterdir())
    with pytest.raises(OutputError, match="is a folder: expected the name of a file"):
        check_writable(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be written"):
        check_writable(tmp_path / "file" / "run.json")


def test_folders_are_made_and_bytes_are_kept(tmp_path: Path) -> None:
    assert write_atomically(tmp_path / "a" / "b.bin", b"\x00\xff").read_bytes() == b"\x00\xff"


def test_a_new_file_has_the_usual_permissions(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    assert write_atomically(tmp_path / "ours", "x").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"schema": "unsmooth.measurement/1", "cells": [', "truncated or not JSON"),
        ('{"schema": "other/1"}', "not ours or of another version.*got 'other/1'"),
        ("[1, 2]", "not ours"),
        ("\udcff", "truncated or not JSON"),
    ],
)
def test_foreign_files_are_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(CheckpointError, match=message):
        read_json(path, "unsmooth.measurement/1")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no file at .*nothing\.json"):
        read_json(tmp_path / "nothing.json", "x/1")


def test_a_good_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "ok.json").write_text(json.dumps({"schema": "x/1", "value": 3}))
    assert read_json(tmp_path / "ok.json", "x/1")["value"] == 3
