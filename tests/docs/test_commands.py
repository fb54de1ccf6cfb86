"""Every command that README and documentation print is one that the command line takes; those of the README run."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

from unsmooth.cli.app import EXAMPLES, VERBS, app

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
VENV = "VENV=/nowhere"  # an environment that is not there, so that `make -n` shows how one is made


def blocks(page: Path) -> list[str]:
    """The shell blocks of a page, long lines put together again."""
    found = re.findall(r"^```sh\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [block.replace("\\\n", " ") for block in found]


def commands(page: Path) -> list[str]:
    """Every `unsmooth VERB …` of a page, in blocks and in running text (there: with argument and option)."""
    lines = [line.strip() for block in blocks(page) for line in block.splitlines()]
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    lines += [line for line in re.findall(r"`(unsmooth [^`]+)`", text) if re.match(r"\S+ \S+ [^-\s].* --", line)]
    return [line.replace("\\|", "|") for line in lines if line.startswith("unsmooth ")]


FOUND = [(page.stem, command) for page in PAGES for command in commands(page)]


def parsed(command: str) -> bool:
    """Whether the command line would run this: it knows the verb, and knows and can convert every option."""
    words = shlex.split(command.replace("…", ""), comments=True)[1:]
    group = typer.main.get_command(app)
    for verb in group.commands.values():  # type: ignore[attr-defined]
        verb.callback = lambda **_: None
    with pytest.raises(SystemExit) as ended:
        group.main(words)
    return ended.value.code == 0


@pytest.mark.parametrize(("page", "command"), FOUND, ids=[f"{page}: {command[:60]}" for page, command in FOUND])
def test_the_command_line_takes_what_the_page_prints(page: str, command: str) -> None:
    assert parsed(command)


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_a_verb_begins_with_commands_that_it_takes(verb: str) -> None:
    shown = CliRunner().invoke(app, [verb, "--help"], terminal_width=80).output.replace("\\\n", " ").splitlines()
    shown = [" ".join(line.split()) for line in shown]
    for example in EXAMPLES[verb]:
        assert example in shown[: shown.index("Options:")]
        assert example.startswith(f"unsmooth {verb}")
        assert parsed(example)


def test_commands_are_found_and_a_wrong_one_would_be_seen() -> None:
    assert len([page for page, _ in FOUND if page == "README"]) >= 10
    assert len(FOUND) >= 25
    for wrong in ("unsmooth measur zoo:x --data bundled", "unsmooth measure zoo:x --samples-of 3", "unsmooth explain"):
        assert not parsed(wrong)


def test_the_commands_of_the_readme_run_as_printed_after_make_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("timm")
    monkeypatch.chdir(tmp_path)
    (block,) = (block for block in blocks(ROOT / "README.md") if "zoo:" in block)
    lines = [line for line in block.splitlines() if line.startswith("unsmooth ")]
    assert len(lines) >= 6
    fewer = {"measure": ["--samples", "2"], "explain": ["--samples", "1"]}  # as printed, on less data
    fewer["report"] = ["--samples", "2", "--explain-inputs", "1"]
    for line in lines:
        words = shlex.split(line)[1:]
        done = CliRunner().invoke(app, [*words, *fewer.get(words[0], ())], catch_exceptions=False)
        assert done.exit_code == 0, f"{line}: {done.output}"
    assert {path.name for path in tmp_path.iterdir()} >= {"plain.json", "sharpening.json", "report.html"}


def recipe(target: str) -> str:
    """What make would do for a target on a machine that has nothing yet."""
    settings = [VENV, "VERSIONS=newest", "EXTRAS=all,dev"]  # not those of the make that runs this test
    asked = ["make", "-n", "--no-print-directory", target, *settings]
    return subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_the_demo_installs_what_it_needs_and_tests_the_developers_tools() -> None:
    demo, test = recipe("demo"), recipe("test")
    assert 'install -q -e ".[vision]"' in demo
    assert "dev" not in demo
    assert demo.rstrip().endswith("unsmooth demo")
    assert 'install -q -e ".[all,dev]"' in test
    assert "pytest" in test


def test_the_extras_that_the_readme_names_are_those_of_the_project() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = readme[readme.index("| extra |") :].split("\n\n")[0]
    extras = set(project["optional-dependencies"]) - {"all", "docs", "dev", "trackers"}
    assert set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE)) == extras
    assert f"Python {project['requires-python'].removeprefix('>=')} or newer" in readme


def test_no_help_text_is_cut_off_on_a_terminal_of_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for words in ([], *([verb] for verb in VERBS)):
        shown = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "80"}, terminal_width=80)
        assert shown.exit_code == 0
        assert max(map(len, shown.output.splitlines())) <= 80, words
        assert not re.search(r"\.\.\.$", shown.output.partition("\n")[2], re.MULTILINE), shown.output
    assert all(line in CliRunner().invoke(app, ["--help"], terminal_width=80).output for line in VERBS.values())
