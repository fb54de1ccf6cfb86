"""The site: it builds without a warning, nothing points outside by accident, formulas are converted."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for package in ("mkdocs", "material", "mkdocstrings_handlers.python", "latex2mathml"):
        pytest.importorskip(package, reason="the docs extra is not installed")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-f", ROOT / "mkdocs.yml", "-d", folder],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_the_site_builds_without_warnings(site: Path) -> None:
    assert (site / "index.html").exists()
    assert "layer_exponent" in (site / "api" / "index.html").read_text()


def test_formulas_are_mathml_and_code_is_left_alone(site: Path) -> None:
    page = (site / "explain" / "index.html").read_text()
    assert page.count("<math") > 10
    assert "$$" not in page
    assert "FORMULA" not in page
    theory = (site / "theory" / "index.html").read_text(encoding="utf-8")
    assert "<p>For tokens × features <math" in theory  # in its paragraph, not in one of its own
    assert not re.search(r"\$\\", page)


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = re.findall(r"<(?:script|img|link)[^>]+(?:src|href)=\"?(https?://[^\"> ]+)", page.read_text())
        assert [address for address in loaded if "canonical" not in address] == [], page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_images_and_local_links_exist(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target
