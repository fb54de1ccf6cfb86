"""Faults while a command runs: finished work is kept, and what files say does no harm to terminals or tables."""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from processes import CLI, Program

import unsmooth

pytest.importorskip("timm")
CLEAR = "\x1b[2J\x1b]0;title\x07"


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    from PIL import Image

    folder = tmp_path / "pictures"
    folder.mkdir()
    for i in range(4):
        Image.effect_noise((70, 70), 50 + i).convert("RGB").save(folder / f"{i}.png")
    return folder


@pytest.mark.parametrize("verb", ["measure", "explain"])
def test_an_unreadable_last_image_does_not_throw_the_others_away(
    verb: str, cli: Callable[..., Any], tiny: list[str], pictures: Path, tmp_path: Path
) -> None:
    (pictures / "9.png").write_bytes(b"no image")
    out = tmp_path / "run.json"
    done = cli(verb, *tiny, "--data", pictures, "--batch-size", 2, "--out", out, code=1)
    assert "9.png is not a readable image" in done.stderr
    found = json.loads(out.read_text())
    assert found["partial"] is True
    assert found["samples" if verb == "measure" else "inputs"] == 4
    out.unlink()
    for image in pictures.glob("[0-3].png"):
        image.unlink()
    assert "9.png is not a readable image" in cli(verb, *tiny, "--data", pictures, "--out", out, code=1).stderr
    assert not out.exists()


def test_a_page_is_written_of_the_images_that_could_be_read(
    cli: Callable[..., Any], tiny: list[str], pictures: Path, tmp_path: Path
) -> None:
    (pictures / "9.png").write_bytes(b"no image")
    page = tmp_path / "page.html"
    done = cli("report", *tiny, "--data", pictures, "--batch-size", 2, "--out", page, code=1)
    assert "9.png is not a readable image" in done.stderr
    assert "4 samples" in page.read_text()
    assert "interrupted" in page.read_text()


# A real signal while the third batch is being measured.
SIGNALLED = """
import os, signal, sys
from unsmooth.analysis import Measurer
update, seen = Measurer.update, []
def interrupted(self, batch):
    seen.append(batch)
    if len(seen) == 3:
        os.kill(os.getpid(), signal.SIGTERM)
    update(self, batch)
Measurer.update = interrupted
import unsmooth.cli
unsmooth.cli.main()
"""


def test_a_schedulers_signal_writes_what_was_measured_so_far(tiny: list[str], tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    arguments = ["measure", *tiny, "--data", "random", "--limit", "100", "--batch-size", "2", "--out", str(out)]
    done = Program(SIGNALLED, arguments, tmp_path)
    assert done.wait() == 143, done.stdout + done.stderr
    assert unsmooth.load_measurement(out).samples == 6


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize("verb", ["measure", "explain", "report"])
def test_a_disk_that_fills_at_the_last_write_does_not_throw_the_work_away(
    verb: str, cli: Callable[..., Any], tiny: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    done = cli(verb, *tiny, "--data", "bundled", "--limit", 1, "--out", "/dev/full", code=1)
    assert "/dev/full cannot be written (No space left on device)" in done.stderr
    kept = Path(re.search(r"What was computed is in (\S+)", done.stderr)[1])  # type: ignore[index]
    assert ("<!doctype html>" if verb == "report" else "unsmooth.") in kept.read_text()[:200]


@pytest.mark.parametrize(
    ("verb", "option"), [("measure", "--out"), ("explain", "--out"), ("report", "--out"), ("demo", "--out")]
)
def test_a_name_too_long_is_refused_before_the_work(
    verb: str, option: str, cli: Callable[..., Any], tmp_path: Path
) -> None:
    arguments = [] if verb == "demo" else ["timm:no_such_model", "--data", "bundled"]
    assert "File name too long" in cli(verb, *arguments, option, tmp_path / ("x" * 256), code=1).stderr


def test_what_the_system_refuses_is_said_with_the_place(
    cli: Callable[..., Any], tiny: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied", "some/folder")

    monkeypatch.setattr("unsmooth.sources.open_data", forbidden)
    done = cli("measure", *tiny, "--data", "some/folder", code=1)
    assert done.stderr == "error: some/folder cannot be read or written: Permission denied\n"


@pytest.mark.skipif(sys.platform == "darwin", reason="names of files are always UTF-8 there")
def test_a_folder_whose_name_is_not_utf_8(tiny: list[str], pictures: Path) -> None:
    odd = pictures.rename(os.path.join(pictures.parent, os.fsdecode(b"caf\xe9")))
    out = pictures.parent / os.fsdecode(b"r\xe9sum\xe9.json")
    page = pictures.parent / "p.html"
    for verb, more in (("measure", ["--out", out]), ("measure", ["--json"]), ("report", ["--out", page])):
        done = Program(CLI, [verb, *tiny, "--data", odd, "--limit", "2", *more], pictures.parent)
        assert done.wait() == 0, done.stderr
    assert unsmooth.load_measurement(out).about.data.reference == odd.name
    assert r"caf\udce9" in page.read_text("utf-8")


@pytest.fixture
def hostile(twins: tuple[Path, Path], tmp_path: Path) -> Path:
    found = json.loads(twins[0].read_text())
    for part in ("model", "data"):
        found[part]["reference"] = CLEAR
    found["notes"] = [CLEAR]
    path = tmp_path / "hostile.json"
    path.write_text(json.dumps(found))
    return path


@pytest.mark.parametrize("verb", ["compare", "check"])
def test_escape_codes_of_a_file_do_not_reach_the_terminal(
    verb: str, cli: Callable[..., Any], hostile: Path, twins: tuple[Path, Path]
) -> None:
    more = [twins[1]] if verb == "compare" else ["--max", "cosine_similarity=2"]
    shown = cli(verb, hostile, *more)
    assert not re.search(r"\x1b\][0-9]|\x1b\[2J|\x07", shown.stdout + shown.stderr)
    assert verb == "check" or r"\x1b[2J" in shown.stdout


def test_escape_codes_of_a_files_name_do_not_reach_the_terminal(cli: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / CLEAR).write_text("{}")
    assert "\x1b[2J" not in cli("compare", tmp_path / f"{CLEAR}.json", tmp_path / "b.json", code=1).stderr
    assert "\x1b[2J" not in cli("check", tmp_path / f"{CLEAR}.json", "--max", "cosine_similarity=1", code=2).stderr


def test_a_fault_in_check_does_not_say_that_a_limit_was_crossed(
    cli: Callable[..., Any], twins: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fault(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("unsmooth.analysis.load_measurement", fault)
    assert "ZeroDivisionError" in cli("check", twins[0], "--max", "cosine_similarity=1", code=2).stderr


def test_a_name_that_is_a_formula_is_text_in_the_csv(cli: Callable[..., Any], tiny: list[str], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    cli("report", *tiny, "--data", "bundled", "--limit", 1, "--explain-inputs", 0, "--names", "=cmd", "--out", page)
    packed = re.search(r'id="file-measurements-csv">([^<]+)<', page.read_text())
    assert packed is not None
    table = gzip.decompress(base64.b64decode(packed[1])).decode().splitlines()
    assert all(line.endswith(",'=cmd") for line in table[1:])
