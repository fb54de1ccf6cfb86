"""docs/paper.md names commands and functions: each exists, and nothing of the paper is missing."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest
from typer.testing import CliRunner

from unsmooth.paper import items

PAGE = (Path(__file__).parents[2] / "docs" / "paper.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(unsmooth[ .][^`]+)`", PAGE)))
COMMANDS = [name for name in NAMED if name.startswith("unsmooth ")]
FUNCTIONS = [name for name in NAMED if name.startswith("unsmooth.")]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_named_command_says_what_it_does(command: str) -> None:
    from unsmooth.cli.app import app

    verb, *rest = command.split()[1:]
    done = CliRunner().invoke(app, [verb, "--help"])
    assert done.exit_code == 0, done.output
    if verb == "reproduce":
        done = CliRunner().invoke(app, [verb, *rest, "--about"])
        assert done.exit_code == 0, done.output
        assert "needs:" in done.output


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_named_function_can_be_imported(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    assert callable(getattr(import_module(module), attribute))


def test_every_item_of_the_paper_and_the_poster_is_listed() -> None:
    for item in items():
        assert f"`unsmooth reproduce {item.name}`" in PAGE, item.name
    listed = ["Eq. (1)", "Eq. (2)", "Assumption 1", "Proposition 1", "Lemma 1", "Lemma 2"]
    listed += [f"{kind} {n}" for kind, most in (("Definition", 4), ("Theorem", 3), ("Corollary", 3), ("Footnote", 2),
                                                ("Figure", 5), ("Table", 3)) for n in range(1, most + 1)]  # fmt: skip
    for entry in listed:
        assert re.search(rf"^\| {re.escape(entry)}[ ,]", PAGE, re.MULTILINE), entry


def test_every_row_says_where_and_what() -> None:
    for line in PAGE.splitlines():
        if line.startswith("| ") and not line.startswith(("| item", "| question")):
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            assert len(cells) == 3, line
            assert all(cells), line
