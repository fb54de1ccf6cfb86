"""A page about a model of ViT-B's size is small enough to send, and what is not seen at first lies packed."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from page.person import Person

from unsmooth.analysis import Subject, TokenView, analyse
from unsmooth.page import build_report
from unsmooth.sources import load_model, open_data

LAYERS, HEADS, WIDTH, TOKENS = 12, 12, 768, 197


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real page about twelve narrow layers, with spectra and tokens of ViT-B's size put in: noise packs worst."""
    pytest.importorskip("timm")
    options = {"img_size": 64, "depth": LAYERS, "embed_dim": 2 * HEADS, "num_heads": HEADS}
    loaded = load_model("timm:vit_tiny_patch16_224", random_init=True, options=options)
    small = analyse(loaded, open_data("bundled", loaded, samples=2), "ViT-B", explain_inputs=2)
    assert small.explanation is not None
    assert small.tokens is not None
    for row in small.explanation.spectra:
        row["layer_values"] = torch.randn(WIDTH, dtype=torch.complex128)
        row["head_values"] = torch.randn(HEADS, WIDTH // HEADS, dtype=torch.complex128)
    rng = np.random.default_rng(0)
    tokens = TokenView(
        points=("blocks.0.pre", *(f"blocks.{i}.post" for i in range(LAYERS))),
        size=TOKENS,
        cosine=rng.integers(0, 256, (LAYERS + 1, TOKENS * (TOKENS + 1) // 2), dtype=np.uint8),
        distance=rng.random((LAYERS + 1, TOKENS), dtype=np.float32),
        prefix=1,
        grid=(14, 14),
        about=small.tokens.about,
    )
    page = tmp_path_factory.mktemp("big") / "report.html"
    subject: Subject = dataclasses.replace(small, tokens=tokens)
    page.write_text(build_report([subject]), encoding="utf-8")
    return page


def test_it_is_at_most_8_mb(big: Path) -> None:
    assert 1e6 < big.stat().st_size <= 8e6


def test_it_opens_and_draws(big: Path, browser: Person) -> None:
    browser.open(big)
    browser.until("document.documentElement.dataset.ready === 'yes'")
    assert browser.evaluate("document.querySelectorAll('#spectra [data-cloud] path').length") > 0
    assert browser.problems() == []


def test_what_is_not_seen_at_first_lies_packed(big: Path, browser: Person) -> None:
    packed = big.read_text(encoding="utf-8")
    # every figure but the playground and what one could do, which has no switch
    assert packed.count('class="parts"') == packed.count("data-figure=") - 2
    browser.open(big)
    browser.until("document.documentElement.dataset.ready === 'yes'")
    assert browser.evaluate("document.documentElement.outerHTML.length") > 1.3 * len(packed)
    assert browser.evaluate("[...document.querySelectorAll('[data-packed]')].filter((e) => !e.innerHTML).length") == 0
