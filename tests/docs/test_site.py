"""The site: it builds without a warning, nothing points outside by accident, formulas are converted."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GALLERY = ("mpnet-base", "cifar100-plain")  # two of the gallery's pages: each takes more than a second
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for package in ("mkdocs", "material", "mkdocstrings_handlers.python", "latex2mathml"):
        pytest.importorskip(package, reason="the docs extra is not installed")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(  # not --strict --quiet: what is not said is not counted either
        [sys.executable, "-m", "mkdocs", "build", "-f", ROOT / "mkdocs.yml", "-d", folder],
        env={**os.environ, "UNSMOOTH_GALLERY": " ".join(GALLERY), "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = [line for line in done.stderr.splitlines() if not line.startswith("INFO")]
    assert [line for line in said if "'#page-" not in line] == []  # pages of the gallery that are left out here
    return folder


def test_the_site_builds_without_warnings(site: Path) -> None:
    assert (site / "index.html").exists()
    api = (site / "api" / "index.html").read_text()
    assert "layer_exponent" in api
    assert "&gt;&gt;&gt;" in api  # examples of docstrings are code, not quotations
    assert "<blockquote>" not in api


def test_formulas_are_mathml_and_code_is_left_alone(site: Path) -> None:
    page = (site / "explain" / "index.html").read_text()
    assert page.count("<math") > 10
    assert "$$" not in page
    assert "FORMULA" not in page
    theory = (site / "theory" / "index.html").read_text(encoding="utf-8")
    assert "<p>For tokens × features <math" in theory  # in its paragraph, not in one of its own
    assert not re.search(r"\$\\", page)


def test_every_public_name_has_an_example_on_the_api_page(site: Path) -> None:
    import unsmooth

    page = (site / "api" / "index.html").read_text(encoding="utf-8")
    heading = re.compile(r'<h3 id="[\w.]*?(\w+)" class="doc doc-heading">')
    starts = [(found.start(), found[1]) for found in heading.finditer(page)]
    ends = [start for start, _ in starts[1:]] + [len(page)]
    shown = {name for (start, name), end in zip(starts, ends, strict=True) if "Example, from" in page[start:end]}
    themselves = {name for name in unsmooth.__all__ if ">>>" in (getattr(unsmooth, name).__doc__ or "")}
    assert set(unsmooth.__all__) - shown - themselves == set()
    assert themselves <= {name for _, name in starts}


def test_the_gallery_opens_whole_pages_that_are_there(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (site / "gallery" / "index.html").read_text(encoding="utf-8")
    assert re.findall(r'<iframe[^>]*data-src="([^"]+)"', page) == [f"{name}.html" for name in GALLERY]
    for name in GALLERY:
        assert (site / "gallery" / f"{name}.html").read_text(encoding="utf-8").startswith("<!doctype html>")
        assert f'href="{name}.html"' in page
    monkeypatch.syspath_prepend(ROOT / "docs")
    import gallery_pages

    from unsmooth.page.words.attribution import who_found

    assert {path.name for path in (ROOT / "docs" / "results").iterdir()} == {
        f"{n}.json.gz" for n in gallery_pages.MODELS
    }
    for name in gallery_pages.MODELS:  # the others can be read too
        assert gallery_pages.row(name).count(" | ") == 5
    _, outlier = who_found(gallery_pages.load("smollm2-135m"), "no-outliers")
    assert "raised most by the MLP of layer 11, nearly all of it by what this writes to the first token" in outlier
    assert "nothing else of note happens in that layer" in outlier


def test_the_changelog_is_a_page_and_the_search_knows_the_words(site: Path) -> None:
    import json

    assert "0.2.0" in (site / "changelog" / "index.html").read_text(encoding="utf-8")
    entries = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]
    for word, page in (
        ("effective rank", "concepts/"),
        ("accelerate launch", "several-gpus/"),
        ("register_metric", "api/"),
    ):
        assert any(
            word in entry["text"] + entry["title"] and entry["location"].startswith(page) for entry in entries
        ), word


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        tags = re.findall(r"<(?:script|img|link)[^>]+(?:src|href)=\"?https?://[^>]+", page.read_text())
        assert [tag for tag in tags if 'rel="canonical"' not in tag] == [], page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_images_and_local_links_exist(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target
