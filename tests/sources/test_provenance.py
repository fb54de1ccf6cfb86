"""What every result says about how it was made."""

from __future__ import annotations

import subprocess
from importlib import import_module
from pathlib import Path

import pytest
import torch

from unsmooth.sources.provenance import commit, hardware, provenance

module = import_module("unsmooth.sources.provenance")


def test_a_repository_that_only_holds_the_installed_package_is_not_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a", *words], cwd=tmp_path, check=True)

    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "somebody's work")
    installed = tmp_path / "provenance.py"
    installed.touch()
    monkeypatch.setattr(module, "__file__", str(installed))
    monkeypatch.delenv("UNSMOOTH_COMMIT", raising=False)
    assert commit() == "unknown"
    git("add", "provenance.py")
    assert commit() != "unknown"


def test_a_commit_that_the_user_names_goes_before_what_git_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNSMOOTH_COMMIT", "abc1234")
    assert commit() == "abc1234"


def test_the_hardware_of_several_processes_says_how_many() -> None:
    one, two = (hardware(torch.device("cpu"), processes) for processes in (1, 2))
    assert one.startswith("CPU ")
    assert two == f"2 × {one}"


def test_a_result_names_day_code_hardware_and_versions() -> None:
    found = provenance("cpu").to_json()
    assert list(found) == ["date", "commit", "hardware", "versions"]
    assert found["versions"]["torch"] == torch.__version__
    assert found["hardware"].startswith("CPU ")
