"""What strangers meet first: workflows that call what was run here, templates, citation, one address everywhere."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import unsmooth
from unsmooth.sources.hub import HUB

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))

pytestmark = pytest.mark.skipif(not WORKFLOWS, reason="an sdist does not hold .github")


def read(path: Path) -> Any:
    """A YAML file; `on:` is a word there, not true."""
    return yaml.safe_load(path.read_text(encoding="utf-8").replace("\non:", '\n"on":'))


def test_workflows_are_what_github_takes() -> None:
    pytest.importorskip("check_jsonschema")
    linter = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"]
    done = subprocess.run([*linter, *map(str, WORKFLOWS)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_command_of_a_workflow_is_a_target_of_the_makefile(path: Path) -> None:
    jobs = read(path)["jobs"]
    ran = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    assert ran
    for command in ran:
        found = re.fullmatch(r"make ([\w-]+)( [A-Z]+=\S+)*", command)
        assert found, f"{command}: a job calls one make target, which can be tried on any machine"
        assert found[1] in TARGETS, command
    used = [step["uses"] for job in jobs.values() for step in job["steps"] if "uses" in step]
    assert all(re.fullmatch(r"(actions|pypa)/[\w-]+@\S+", action) for action in used), used


def test_the_lower_bounds_are_tried_on_the_oldest_python() -> None:
    job = read(ROOT / ".github" / "workflows" / "tests.yml")["jobs"]["test"]
    assert job["env"]["VERSIONS"] == "${{ matrix.versions }}"
    (oldest,) = (row for row in job["strategy"]["matrix"]["include"] if row["versions"] == "oldest")
    assert f">={oldest['python']}" == PROJECT["requires-python"]
    shown = ["make", "-n", "-B", "demo", "test", "VERSIONS=oldest"]
    said = subprocess.run(shown, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    installs = [line for line in said.splitlines() if " install " in line]
    assert len(installs) == 2
    assert all("uv pip install -q --python .venv/bin/python --resolution lowest-direct -e" in line for line in installs)
    named = [*PROJECT["dependencies"], *(n for e in PROJECT["optional-dependencies"].values() for n in e)]
    assert [name for name in named if ">=" not in name and not name.startswith("unsmooth[")] == []


def test_every_python_that_a_classifier_names_is_tried() -> None:
    matrix = read(ROOT / ".github" / "workflows" / "tests.yml")["jobs"]["test"]["strategy"]["matrix"]
    tried = {*matrix["python"], *(row["python"] for row in matrix["include"])}
    named = {found for line in PROJECT["classifiers"] if (found := line.rpartition(":: ")[2]).startswith("3.")}
    assert tried == named
    assert min(named, key=lambda version: int(version[2:])) == PROJECT["requires-python"].removeprefix(">=")


def test_templates_ask_for_a_command_that_exists() -> None:
    forms = [read(path) for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config"]
    assert len(forms) >= 3
    for form in forms:
        assert {"name", "description", "body"} <= form.keys()
        assert all(part["type"] in ("markdown", "input", "textarea") for part in form["body"])
    text = (ROOT / ".github" / "ISSUE_TEMPLATE" / "model.yml").read_text(encoding="utf-8")
    assert "`unsmooth measure MODEL --random-init --data random --samples 2`" in text


def test_the_citation_is_of_this_version_and_of_both_appearances_of_the_paper() -> None:
    cited = read(ROOT / "CITATION.cff")
    assert str(cited["version"]) == unsmooth.__version__.partition(".dev")[0]
    assert cited["license"] == PROJECT["license"]
    papers = [cited["preferred-citation"], *cited["references"]]
    assert [(paper["year"], paper["journal"]) for paper in papers] == [
        (2025, "Transactions on Machine Learning Research"), (2024, "arXiv preprint"),
    ]  # fmt: skip
    assert all(len(paper["authors"]) == 3 for paper in papers)


GITHUB = r"(?:github\.com/|google\.com/github/|repo_name: )([\w-]+)/([\w-]+)"
SITE = r"([\w-]+)\.github\.io/([\w-]+)"


def addresses(root: Path) -> dict[tuple[str, ...], list[str]]:
    """Everywhere the project says where it is: owner and name on GitHub (and Colab), or owner and name of the site."""
    files = [*root.glob("[!.]*.*"), *(root / ".github").rglob("*.yml"), *(root / "docs").glob("*.md"),
             *(root / "notebooks").glob("*.ipynb"), *(root / "src").rglob("*.py")]  # fmt: skip
    found: dict[tuple[str, ...], list[str]] = {}
    for path in files:
        text = path.read_text(encoding="utf-8")
        for pattern in (GITHUB, SITE):
            for address in re.findall(pattern, text):
                found.setdefault(address, []).append(str(path.relative_to(root)))
    return found


def test_the_project_has_one_address() -> None:
    urls = dict(PROJECT["urls"])
    assert urls.pop("Paper").startswith("https://arxiv")
    assert all(url.startswith((urls["Homepage"], urls["Documentation"])) for url in urls.values())
    found = addresses(ROOT)
    owner = urls["Homepage"].split("/")[-2]
    assert set(found) == {(owner, "unsmooth")}, {
        key: where for key, where in found.items() if key != (owner, "unsmooth")
    }
    assert len(set(found[owner, "unsmooth"])) > 10
    assert f"(https://huggingface.co/{HUB})" in (ROOT / "docs" / "hub.md").read_text(encoding="utf-8")


def test_the_project_moves_by_one_command(tmp_path: Path) -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^    (git grep .*)$", text, re.MULTILINE)
    owner = PROJECT["urls"]["Homepage"].split("/")[-2]
    for where in {path for paths in addresses(ROOT).values() for path in paths}:
        (tmp_path / where).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / where).write_bytes((ROOT / where).read_bytes())
    script = f"git init -q && git add -A && {command.replace('NEW', 'somebody')}"
    subprocess.run(["bash", "-ec", script], cwd=tmp_path, check=True, capture_output=True)
    assert set(addresses(tmp_path)) == {("somebody", "unsmooth")}, f"{command} leaves {owner}"
