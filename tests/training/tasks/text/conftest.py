"""A tiny corpus and a tiny recipe."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from unsmooth.training.tasks.text.corpus import Corpus, open_corpus
from unsmooth.training.tasks.text.recipe import RECIPES, TextRecipe

WORDS = """the quick brown fox jumps over a lazy dog while seven wizards vex bright judges near foggy
quays""".split()  # noqa: SIM905


def document(number: int, words: int = 60) -> str:
    """Words in an order that a model can learn something of."""
    return " ".join(WORDS[(number * 7 + i * i) % len(WORDS)] for i in range(words))


def corpus(folder: Path, **options: object) -> Corpus:
    """Of the texts in `folder`, with a cache beside them."""
    settings = {"length": 16, "vocabulary": 90, **options}
    return open_corpus([folder / "texts"], folder / "cache", **settings)  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with `texts/`, 400 documents in one file."""
    lines = [json.dumps({"text": document(i)}) for i in range(400)]
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.jsonl").write_text("\n".join(lines))
    return tmp_path


@pytest.fixture
def tiny() -> TextRecipe:
    """Two layers of width 16, 12 steps."""
    model = "depth=2 width=16 heads=2 inner=16 vocabulary=90 length=16"
    steps = "steps=12 batch_size=8 chunk=3 every=6 held_out=16 metric_sequences=4 lr=5e-3"
    return RECIPES["small-text"].override(f"{model} {steps}".split())


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNSMOOTH_CACHE", str(tmp_path / "cache"))
