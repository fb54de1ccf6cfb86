"""The rooms stand as designed: imports follow the arrows, no function hides a room, importing is quick and quiet."""

from __future__ import annotations

import ast
import doctest
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import unsmooth

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "unsmooth"

# Which rooms a room may import, itself aside. An import inside a function counts, and so does one for types alone:
# whoever names another room's types depends on it.
BOTTOM = {"errors", "prose", "metrics"}
RESULTS = BOTTOM | {"theory", "sources", "analysis"}  # what reads results may use: their types, formats and definitions
ARROWS: dict[str, set[str]] = {
    "errors": set(),
    "prose": set(),
    "metrics": {"errors"},
    "theory": BOTTOM,
    "models": BOTTOM,
    "sources": BOTTOM | {"models", "control"},  # a trained model is loaded with its fix
    "analysis": BOTTOM | {"theory", "models", "sources"},
    "control": BOTTOM | {"theory", "models"},
    "callbacks": BOTTOM | {"models", "sources", "analysis"},
    "training": BOTTOM | {"theory", "models", "sources", "analysis", "control"},
    "figures": RESULTS,
    "page": RESULTS | {"figures"},
    "paper": RESULTS | {"models", "control", "training", "figures"},  # its results come from models and records
    "sweeping": RESULTS | {"models", "control", "training"},  # edits a model, measures it, asks a task
    "reporting": RESULTS | {"models", "page"},  # from a model in memory to a page
    "publishing": RESULTS | {"training"},  # from a trained folder and its record to the hub
    "cli": RESULTS
    | {"models", "control", "training", "callbacks", "figures", "page", "paper", "publishing", "reporting", "sweeping"},
    "__main__": {"cli"},  # python -m unsmooth
}
SURFACE = RESULTS | {
    "models",
    "control",
    "callbacks",
    "page",
    "reporting",
    "sweeping",
}  # where unsmooth/__init__.py finds the public names

# Imports against the arrows that stay, with the reason; one that is gone must go from here too.
DOORS = {
    ("analysis/attributing/attribution.py", "unsmooth.figures.Drawing"): "what a.plot() returns",
    ("analysis/attributing/attribution.py", "unsmooth.figures.parts"): "a.plot()",
    ("analysis/explaining/explanation.py", "unsmooth.figures.Drawing"): "what e.plot() returns",
    ("analysis/explaining/explanation.py", "unsmooth.figures.agreement"): "e.plot()",
    ("analysis/measuring/measurement.py", "unsmooth.figures.Drawing"): "what m.plot() returns",
    ("analysis/measuring/measurement.py", "unsmooth.figures.depth"): "m.plot(): a result draws itself in a notebook",
    ("analysis/sweep.py", "unsmooth.figures.Drawing"): "what s.plot() returns",
    ("analysis/sweep.py", "unsmooth.figures.prices"): "s.plot()",
}

HEAVY = {"torch", "torchvision", "timm", "transformers", "datasets", "pandas", "matplotlib", "PIL", "lightning"}


def room_of(path: Path) -> str:
    """The room of a file below the package."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(source: str, package: str) -> Iterator[tuple[int, str]]:
    """Line and full name of everything a module imports, wherever the statement stands."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == "import_module":
            first = node.args[0] if node.args else None
            name = first.values[0] if isinstance(first, ast.JoinedStr) else first
            if isinstance(name, ast.Constant):
                yield node.lineno, str(name.value)


def wrong_arrows(room: str, source: str, package: str = "unsmooth.x") -> list[tuple[int, str]]:
    """Line and name of each import that the room may not have."""
    allowed = (SURFACE if room == "__init__" else ARROWS[room]) | {room}
    found = []
    for line, name in imported(source, package):
        top, _, rest = name.partition(".")
        target = rest.partition(".")[0]
        computed = room == "__init__" and not target  # import_module(f"unsmooth.{room}"), of the rooms that it lists
        if top == "unsmooth" and not computed and target not in allowed | {"__version__"}:
            found.append((line, name))
    return found


FILES = sorted(PACKAGE.rglob("*.py"))


def test_the_arrows_name_every_room_and_have_no_circle() -> None:
    assert {room_of(path) for path in FILES} - {"__init__"} == set(ARROWS)
    left = dict(ARROWS)
    while left:
        free = [room for room, targets in left.items() if not targets & left.keys()]
        assert free, f"these rooms import each other in a circle: {sorted(left)}"
        for room in free:
            del left[room]


@pytest.mark.parametrize("room", ["__init__", *ARROWS])
def test_no_import_goes_against_the_arrows(room: str) -> None:
    found = []
    for path in (path for path in FILES if room_of(path) == room):
        package = ".".join(["unsmooth", *path.relative_to(PACKAGE).parent.parts])
        for line, name in wrong_arrows(room, path.read_text(encoding="utf-8"), package):
            if (path.relative_to(PACKAGE).as_posix(), name) not in DOORS:
                found.append(f"{path.relative_to(ROOT)}:{line} imports {name}")
    assert not found, f"{room} may import {', '.join(sorted(ARROWS.get(room, SURFACE)))} only:\n" + "\n".join(found)


def test_every_exception_is_still_needed() -> None:
    for file, name in DOORS:
        source = (PACKAGE / file).read_text(encoding="utf-8")
        assert name in {found for _, found in wrong_arrows(file.partition("/")[0], source)}, (
            f"{file} is mended: remove it"
        )


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("metrics", "import unsmooth.models"),
        ("metrics", "import torch\nfrom unsmooth import analysis"),
        ("models", "def f():\n    from unsmooth.analysis import measure"),
        ("theory", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from unsmooth.models import Norm"),
        ("page", "from ..training import loop"),
        ("page", "from importlib import import_module\nimport_module('unsmooth.training.loop')"),
        ("analysis", "from unsmooth.cli import options"),
        ("sources", "from unsmooth import measure"),  # the package's own surface is for users
    ],
)
def test_the_guard_sees_an_arrow_against_the_design(room: str, source: str) -> None:
    assert len(wrong_arrows(room, source, f"unsmooth.{room}")) == 1


def test_the_guard_lets_the_design_pass() -> None:
    assert (
        wrong_arrows("analysis", "from unsmooth.metrics import x\nfrom .measurer import y", "unsmooth.analysis") == []
    )


def test_folders_of_tests_mirror_those_of_the_package() -> None:
    tests = ROOT / "tests"
    folders = {path.parent.relative_to(tests) for path in tests.rglob("test_*.py")}
    apart = {Path("docs"), Path("fuzz")}  # tests of the site, and of everything at once
    assert {folder for folder in folders - apart if not (PACKAGE / folder).is_dir()} == set()


# The public names.


def rooms() -> set[str]:
    return {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}


def test_no_function_hides_a_room() -> None:
    assert rooms() & set(unsmooth.__all__) == set()
    for room in rooms() & vars(unsmooth).keys():
        assert isinstance(getattr(unsmooth, room), ModuleType), room


def test_public_names_exist_are_sorted_and_say_what_they_are() -> None:
    assert list(unsmooth.__all__) == sorted(unsmooth.__all__)
    for name in unsmooth.__all__:
        value = getattr(unsmooth, name)
        assert inspect.getdoc(value), name
        # A dataclass without a docstring gets its signature for one.
        assert not inspect.getdoc(value).startswith(f"{name}("), name  # type: ignore[union-attr]


def shown(name: str) -> bool:
    """Whether a docstring or a code block of the documentation shows the public name in use."""
    if doctest.DocTestParser().get_examples(inspect.getdoc(getattr(unsmooth, name)) or ""):
        return True
    blocks = [
        block
        for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
        for block in re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    ]
    return any(re.search(rf"\b{name}\b(?!=)", block) for block in blocks)  # a keyword of that name is no use of it


@pytest.mark.parametrize("name", unsmooth.__all__)
def test_every_public_name_has_an_example(name: str) -> None:
    assert shown(name), f"unsmooth.{name} is shown in no docstring (>>>) and in no Python block of README and docs"


@pytest.mark.parametrize("name", unsmooth.__all__)
def test_every_public_name_is_in_the_reference(name: str) -> None:
    value = getattr(unsmooth, name)
    listed = re.findall(r"^::: (\S+)", (ROOT / "docs" / "api.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert any(entry == value.__module__ or entry.endswith(f".{name}") for entry in listed), f"docs/api.md lacks {name}"


# Importing.


def loaded_by(code: str) -> tuple[set[str], str]:
    """The top-level modules that a fresh interpreter has after `code`, and what it printed on the way."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"{code}\nimport sys\nprint('|', *sys.modules)"],
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    said, _, modules = done.stdout.rpartition("| ")
    return {name.partition(".")[0] for name in modules.split()}, said + done.stderr


@pytest.mark.parametrize("code", ["import unsmooth", "import unsmooth.cli.app"])
def test_importing_is_quiet_and_leaves_heavy_libraries_alone(code: str) -> None:
    modules, said = loaded_by(code)
    assert "unsmooth" in modules
    assert said == ""
    assert modules & HEAVY == set()  # so that `unsmooth --help` answers at once


def test_a_users_project_is_type_checked_against_us(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    assert (PACKAGE / "py.typed").exists()  # without it an installed package counts as untyped; test_wheel.py ships it
    (tmp_path / "mine.py").write_text(
        "import torch\nimport unsmooth\n\nratio: torch.Tensor = unsmooth.hfc_lfc_ratio(torch.ones(2, 3, 4))\n"
        "wrong: int = unsmooth.measure(torch.nn.Identity(), [])\n"
    )
    # what these say of themselves takes seconds
    others = ["torch", "numpy", "pandas", "jaxtyping", "rich", "typer", "safetensors"]
    skipped = "".join(f"[mypy-{name}.*]\nfollow_imports = skip\n" for name in others)
    (tmp_path / "mypy.ini").write_text(f"[mypy]\nfollow_imports = silent\n{skipped}")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", f"--cache-dir={tmp_path}", "mine.py"],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(PACKAGE.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    # The one error is the user's own, and it shows that our types are seen.
    assert re.findall(r"^(\S+): error: (.*?)  ", done.stdout, re.MULTILINE) == [
        ("mine.py:5", 'Incompatible types in assignment (expression has type "Measurement", variable has type "int")')
    ], done.stdout + done.stderr
