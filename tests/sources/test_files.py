"""Files are whole or absent, and foreign files are refused by name."""

from __future__ import annotations

import json
import os
import socket
import tempfile
import threading
from pathlib import Path

import pytest

from unsmooth.errors import CheckpointError, OutputError
from unsmooth.sources import files
from unsmooth.sources.files import check_writable, read_json, write_atomically, write_result


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


def test_a_link_stays_a_link_and_its_file_is_written(tmp_path: Path) -> None:
    real = tmp_path / "elsewhere" / "real.json"
    real.parent.mkdir()
    real.write_text("old")
    link = tmp_path / "link.json"
    link.symlink_to(real)
    check_writable(link)
    write_atomically(link, "new")
    assert link.is_symlink()
    assert real.read_text() == "new"
    assert [p.name for p in real.parent.iterdir()] == ["real.json"]
    dangling = tmp_path / "dangling.json"
    dangling.symlink_to(tmp_path / "made")
    write_atomically(dangling, "made")
    assert (tmp_path / "made").read_text() == "made"


def test_links_in_a_circle_and_names_too_long_are_refused_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    for name in ("a", "x" * 256, "é" * 128, "y" * 300 + "/run.json", "a\0b"):
        with pytest.raises(OutputError, match="cannot be written"):
            check_writable(tmp_path / name)
        with pytest.raises(OutputError, match="cannot be written"):
            write_atomically(tmp_path / name, "x")


def test_a_name_as_long_as_names_may_be_is_written(tmp_path: Path) -> None:
    longest = tmp_path / ("x" * 255)
    check_writable(longest)
    assert write_atomically(longest, "x").read_text() == "x"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names here")
def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    check_writable(pipe)
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_text()))
    reader.start()
    write_atomically(pipe, "content")
    reader.join(10)
    assert got == ["content"]
    assert pipe.is_fifo()


@pytest.mark.skipif(not Path("/dev/null").is_char_device(), reason="there is no /dev/null here")
def test_a_device_is_written_to_and_stays_a_device() -> None:
    check_writable("/dev/null")
    write_atomically("/dev/null", "x")
    assert Path("/dev/null").is_char_device()


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="there are no sockets with names here")
def test_a_socket_is_refused_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # names of sockets are short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s")
        for act in (check_writable, lambda path: write_atomically(path, "x")):
            with pytest.raises(OutputError, match="s is a socket: expected the name of a file"):
                act("s")


def test_a_result_that_cannot_be_written_at_the_end_is_kept_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "spare"))
    (tmp_path / "spare").mkdir()
    target = tmp_path / "full" / "run.json"
    check_writable(target)
    make, full = os.open, str(tmp_path / "full")

    def no_space(path: object, *rest: object, **options: object) -> int:
        if str(path).startswith(full):
            raise OSError(28, "No space left on device")
        return make(path, *rest, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", no_space)
    with pytest.raises(OutputError, match=r"No space left on device.* What was computed is in .*result") as error:
        write_result(target, "hours of work")
    assert Path(str(error.value).rpartition(" in ")[2]).read_text() == "hours of work"
    assert not target.exists()


def test_text_with_bytes_of_a_name_that_is_not_utf_8_is_written(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9")
    written = write_atomically(tmp_path / "a.json", json.dumps({"schema": "x/1", "name": name}, ensure_ascii=False))
    assert read_json(written, "x/1")["name"] == name


def test_half_a_character_is_spelled_out_when_read(tmp_path: Path) -> None:
    """Neither pandas nor a terminal takes it; halves that stand for bytes of a file's name are above."""
    (tmp_path / "a.json").write_text('{"schema": "x/1", "name": "a\\ud800b"}')
    assert read_json(tmp_path / "a.json", "x/1")["name"] == "a\\ud800b"


@pytest.mark.parametrize(
    ("content", "message"),
    [("[" * 100_000, "nested too deeply"), ('{"a": ' * 100_000, "nested too deeply"), ("9" * 5000, "not JSON")],
)
def test_json_that_python_cannot_hold_is_refused(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(CheckpointError, match=message):
        read_json(tmp_path / "a.json", "x/1")


def test_json_larger_than_any_of_ours_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.json").write_text('{"schema": "x/1"}')
    monkeypatch.setattr(files, "MOST_BYTES", 10)
    with pytest.raises(CheckpointError, match="has 17 bytes: expected a JSON file of kind 'x/1' of 1 GiB at most"):
        read_json(tmp_path / "a.json", "x/1")


def test_a_forbidden_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.json").write_text("{}")

    def forbidden(*_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", forbidden)
    with pytest.raises(CheckpointError, match=r"a\.json cannot be read \(Permission denied\)"):
        read_json(tmp_path / "a.json", "x/1")


def test_an_empty_name_is_refused_before_the_work() -> None:
    with pytest.raises(OutputError, match="the name of the output is empty"):
        check_writable("")
