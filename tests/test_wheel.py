"""A plain install is whole: the wheel holds the code, the page's files, the pictures, models and records."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which a wheel of the project was unpacked."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    assert wheel.stat().st_size <= 45e6, f"the wheel has {wheel.stat().st_size / 1e6:.0f} MB"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_a_wheel_holds_every_file_of_the_package_and_six_models(installed: Path) -> None:
    files = (path.relative_to(ROOT / "src") for path in (ROOT / "src" / "unsmooth").rglob("*") if path.is_file())
    assert [path for path in files if "__pycache__" not in path.parts and not (installed / path).exists()] == []
    models = {path.parent.name for path in installed.glob("unsmooth/zoo/*/model.safetensors")}
    assert models == {f"{data}-{v}" for data in ("cifar100", "text") for v in ("plain", "sharpening", "smoothing")}
    runs = {path.name for path in (ROOT / "zoo" / "finetuned").iterdir()}
    assert {path.name for path in installed.glob("unsmooth/zoo/finetuned/*")} == runs  # `reproduce findings` reads them
    (wheel,) = installed.parent.glob("*.whl")
    assert wheel.stat().st_size < 45e6


def test_an_installed_wheel_uses_its_own_models_and_records(installed: Path, tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "UNSMOOTH_ZOO"}
    code = (
        "from unsmooth.sources.trained import zoo_folder; from unsmooth.paper import Context, find_item;"
        "print(zoo_folder()); print(find_item('poster-table2').run(Context()).label)"
    )
    said = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(installed)},
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    assert said[0] == str(installed / "unsmooth" / "zoo")
    assert said[1].endswith("9 of 9 cells have runs")


def test_the_metadata_say_where_the_project_is_and_which_extras_it_has(installed: Path) -> None:
    (path,) = installed.glob("unsmooth-*.dist-info/METADATA")
    said = path.read_text(encoding="utf-8")
    for name in ("Homepage", "Documentation", "Source", "Issues", "Changelog", "Paper"):
        assert f"Project-URL: {name}, https://" in said
    for extra in ("vision", "text", "data", "report", "hub", "train", "all"):
        assert f"Provides-Extra: {extra}\n" in said
    assert "Classifier: Typing :: Typed\n" in said
    assert (installed / "unsmooth" / "py.typed").exists()


def test_an_sdist_holds_what_a_wheel_is_built_from_and_the_tests_and_is_small() -> None:
    from hatchling.builders.sdist import SdistBuilder

    files = [Path(file.path) for file in SdistBuilder(str(ROOT)).recurse_included_files()]
    names = {path.relative_to(ROOT).as_posix() for path in files}
    assert {"pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "src/unsmooth/py.typed"} <= names
    assert {"tests/conftest.py", "zoo/cifar100-plain/model.safetensors", "zoo/README.md"} <= names
    assert not [name for name in names if name.startswith((".ci/", ".models", "site/", "dist/", "build/"))]
    assert sum(path.stat().st_size for path in files) <= 60e6
