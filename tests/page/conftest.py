"""A small page about two models, and somebody who uses it in a headless browser."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from chromium import find_browser
from page.person import EVIL, Person

from unsmooth.analysis import Subject, analyse
from unsmooth.page import build_report
from unsmooth.sources import LoadedModel, load_model, open_data


def tiny(seed: int) -> LoadedModel:
    """A ViT of three small layers with 17 tokens."""
    pytest.importorskip("timm")
    torch.manual_seed(seed)
    options = {"img_size": 64, "depth": 3, "embed_dim": 24, "num_heads": 2}
    return load_model("timm:vit_tiny_patch16_224", random_init=True, options=options)


@pytest.fixture(scope="session")
def subjects() -> list[Subject]:
    """Two models, one with a name that tries to break out of the page."""
    found = []
    for seed, name in enumerate(("plain", EVIL)):
        loaded = tiny(seed)
        # larger weights, so that layers do something that can be seen
        for parameter in loaded.model.parameters():
            parameter.data *= 3.0 + seed
        # a negative norm weight: what acts is the opposite of what the bare weights say
        loaded.model.blocks[0].norm1.weight.data *= -1
        found.append(analyse(loaded, open_data("bundled", loaded, samples=4), name, explain_inputs=2))
    return found


@pytest.fixture(scope="session")
def html(subjects: list[Subject]) -> str:
    return build_report(subjects, command=f"unsmooth report {EVIL}")


@pytest.fixture(scope="session")
def page(html: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(html, encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def browser() -> Iterator[Person]:
    """One browser for all tests, or a skip that says so."""
    if find_browser() is None:
        pytest.skip("no Chromium was found (set UNSMOOTH_BROWSER)")
    with Person(wait=60) as person:
        yield person


@pytest.fixture
def person(browser: Person, page: Path) -> Person:
    """Somebody who has just opened the page on a desktop."""
    browser.read(page)
    return browser


@pytest.fixture(scope="session")
def unexplained(subjects: list[Subject]) -> Subject:
    """A model that was measured and no more."""
    return dataclasses.replace(subjects[0], explanation=None, tokens=None)
