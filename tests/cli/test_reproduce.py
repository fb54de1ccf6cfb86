"""`unsmooth reproduce`: what there is, what it needs, and running it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from unsmooth.errors import DataError
from unsmooth.paper import Context, Item, Result, Table, items


def fake(name: str, error: str = "") -> Item:
    def run(context: Context) -> Result:
        if error:
            raise DataError(error)
        table = Table("numbers", ["who", "value"], [["me", 0.123456], ["seed", context.seed]])
        return Result(f"stand-in for {name}", [table], notes=["a [note]"])

    return Item(name, "paper", f"Title of {name}", f"needs of {name}", run)


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    """One item that works and one that cannot."""
    known = (fake("fine"), fake("stuck", "no weights here"))
    monkeypatch.setattr("unsmooth.paper.items", lambda: known)
    monkeypatch.setattr("unsmooth.paper.index.items", lambda: known)


def test_list_names_everything_and_its_needs(cli: Callable[..., Any]) -> None:
    shown = cli("reproduce", "list").stdout.splitlines()
    for item, line in zip(items(), shown, strict=False):
        assert line.split() == [item.name, *item.title.split()]
    found = json.loads(cli("reproduce", "list", "--json").stdout)
    assert [row["name"] for row in found] == [item.name for item in items()]
    assert all(row["needs"] for row in found)


@pytest.mark.usefixtures("two")
def test_about_says_what_one_needs_without_running_it(cli: Callable[..., Any]) -> None:
    assert "needs of stuck" in cli("reproduce", "stuck", "--about").stdout


@pytest.mark.usefixtures("two")
def test_one_item_is_labelled_shown_and_written(cli: Callable[..., Any], tmp_path: Path) -> None:
    out = tmp_path / "fine.json"
    shown = cli("reproduce", "fine", "--seed", 7, "--out", out).stdout
    for text in ("Title of fine", "stand-in for fine", "0.1235", "note: a [note]", f"written to {out}"):
        assert text in shown
    found = json.loads(out.read_text())
    assert found["tables"][0]["rows"] == [["me", 0.123456], ["seed", 7]]
    assert found == json.loads(cli("reproduce", "fine", "--seed", 7, "--json").stdout)


@pytest.mark.usefixtures("two")
def test_all_goes_on_after_a_failure_and_says_so_by_its_exit_code(cli: Callable[..., Any]) -> None:
    shown = cli("reproduce", "all", code=1).stdout
    assert "stand-in for fine" in shown
    assert "not run: no weights here" in shown
    found = json.loads(cli("reproduce", "all", "--json", code=1).stdout)
    assert found[1] == {"name": "stuck", "error": "no weights here"}


@pytest.mark.usefixtures("two")
def test_one_failure_is_one_message(cli: Callable[..., Any], tmp_path: Path) -> None:
    done = cli("reproduce", "stuck", "--out", tmp_path / "x.json", code=1)
    assert done.stderr == "error: no weights here\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("two")
def test_a_device_that_is_not_there_is_named(cli: Callable[..., Any]) -> None:
    assert "device 'warp' cannot be used here" in cli("reproduce", "fine", "--device", "warp", code=1).stderr


def test_an_unknown_name_gets_the_list_and_the_nearest(cli: Callable[..., Any]) -> None:
    done = cli("reproduce", "fgi4", code=1)
    assert "unknown figure or table 'fgi4': expected one of " in done.stderr
    assert "did you mean fig4?" in done.stderr


@pytest.mark.parametrize("room", [80, 60])
def test_cells_break_between_words(room: int) -> None:
    from rich.console import Console

    from unsmooth.cli import reproduce

    columns = ["model", "trained on", "reading", "kind", "ours", "published", "remark"]
    row = ["ViT-Ti⁻ (sharpening)", "10 %", "residual", "LayerNorm", "+1.107 (n=1)", "+0.573", "sign differs"]
    item = fake("wide")
    console = Console(width=room, record=True, file=io.StringIO())
    reproduce._show(item, Result("wide", [Table("wide", columns, [row])]), None, console)
    shown = console.export_text()
    assert max(map(len, shown.splitlines())) <= room
    assert "(sharpening)" in shown
    joined = "".join(shown.split())
    assert all(number in joined for number in ("+1.107", "+0.573"))


def test_one_long_name_pushes_no_number_off_the_screen() -> None:
    from rich.console import Console

    from unsmooth.cli import reproduce

    columns = ["model", "layers", "metric", "input", "halfway", "end", "change"]
    row = ["cifar100-10pct-sharpening", "12", "cosine similarity", "0.4559", "0.2012", "0.05249", "-0.4034"]
    console = Console(width=80, record=True, file=io.StringIO())
    reproduce._show(fake("long"), Result("long", [Table("long", columns, [row])]), None, console)
    words = console.export_text().split()
    assert {*columns, *" ".join(row).split()} <= {*words}


def test_a_name_too_long_for_the_screen_breaks_after_a_hyphen() -> None:
    from rich.console import Console

    from unsmooth.cli import reproduce

    columns = ["model", *(f"column-{n}" for n in range(6))]
    row = ["cifar100-10pct-sharpening", *(f"-0.{n}2345" for n in range(6))]
    console = Console(width=72, record=True, file=io.StringIO())
    reproduce._show(fake("names"), Result("names", [Table("names", columns, [row])]), None, console)
    words = console.export_text().split()
    assert {"cifar100-10pct-", "sharpening", *columns, *row[1:]} <= {*words}


WIDE = [
    [
        "model",
        *(f"{side} ({kind}) %" for side in ("ours", "published") for kind in (1, 2)),
        "neither endpoint %",
        "ties %",
    ],
    ["cifar100-10pct-sharpening", "91.67", "77.6% – 100.0%", "98.92", "1.08", "29.17", "0.6944"],
    ["ViT-B/16, ImageNet", "100", "99.7% – 100.0%", "70.27", "29.73", "0", "0"],
]


@pytest.mark.parametrize("room", [40, 60, 80, 200])
def test_no_word_or_number_of_a_table_is_broken_at_any_width(room: int) -> None:
    import io

    from rich.console import Console

    from unsmooth.cli import reproduce

    shown = ""
    for part in reproduce._parts(WIDE, room):
        console = Console(width=room, file=io.StringIO())
        console.print(reproduce._table("t", [[row[column] for column in part] for row in WIDE], room))
        shown += console.file.getvalue()  # type: ignore[attr-defined]
    assert max(map(len, shown.splitlines())) <= room
    for row in WIDE:
        for word in " ".join(row[1:]).split():
            assert word in shown
    pieces = shown.replace("\n", " ").split()
    assert "sharpening" in pieces or "cifar100-10pct-sharpening" in pieces


def test_an_answer_is_a_heading_a_paragraph_its_table_and_its_commands() -> None:
    from rich.console import Console

    from unsmooth.cli import reproduce
    from unsmooth.paper.item import Section

    section = Section(
        "1. Does it?", "settled, 9 pairs", "Yes, it does. " * 20, "unsmooth reproduce a; unsmooth train b",
        (Table("What shows it", ["variant", "accuracy in %"], [["gfsa", "21.14"], ["plain", "20.06"]]),),
    )  # fmt: skip
    console = Console(width=150, record=True, file=io.StringIO())
    reproduce._show(fake("asked"), Result("label", sections=[section], notes=["n"]), None, console)
    lines = [line.rstrip() for line in console.export_text().splitlines()]
    start = lines.index("1. Does it?")
    assert lines[start - 1] == ""
    assert lines[start + 1] == "   settled, 9 pairs"
    assert lines[-3:] == ["   $ unsmooth reproduce a", "   $ unsmooth train b", "note: n"]
    table = lines.index("What shows it")
    assert max(number for number, line in enumerate(lines) if "Yes, it does." in line) < table
    assert any(line.split() == ["gfsa", "21.14"] for line in lines[table:-3])
    assert max(map(len, lines)) <= 100
