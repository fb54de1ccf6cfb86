"""Models at the edge: one layer, an attention that adds nothing, features that are zero, names without end."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from page.person import Person

from unsmooth.analysis import Subject, analyse
from unsmooth.figures import save_figures, subject_figures
from unsmooth.figures.prediction import SERIES, rates_by_layer
from unsmooth.page import build_report
from unsmooth.page.data import shared_policies
from unsmooth.page.words.findings import findings
from unsmooth.sources import LoadedModel, load_model, open_data

LONG = "W" * 300


def small(depth: int) -> LoadedModel:
    options = {"img_size": 32, "patch_size": 8, "depth": depth, "embed_dim": 24, "num_heads": 2}
    return load_model("timm:vit_tiny_patch16_224", random_init=True, options=options)


def collected(loaded: LoadedModel, name: str) -> Subject:
    return analyse(loaded, open_data("bundled", loaded, samples=1), name, explain_inputs=1, degenerate="keep")


def test_one_layer_is_seen_and_a_long_name_does_not_stick_out(browser: Person, tmp_path: Path) -> None:
    subjects = [collected(small(1), name) for name in (LONG, "short")]
    (tmp_path / "page.html").write_text(build_report(subjects), encoding="utf-8")
    browser.resize(1280, 900)
    browser.open(tmp_path / "page.html")
    browser.until("document.documentElement.dataset.ready === 'yes'")
    dots = "document.querySelectorAll('#exponent-charts svg.wide path[stroke-linecap=round]').length"
    explanation = subjects[0].explanation
    assert explanation is not None
    series = [s for s in SERIES if s.name in rates_by_layer(explanation.frame())]
    assert browser.evaluate(dots) == 2 * len(series)  # of two models: no line has one point
    assert browser.evaluate("document.documentElement.scrollWidth") <= 1280
    save_figures(subject_figures(subjects), tmp_path, ["svg"])
    assert "h0" in (tmp_path / "exponents.svg").read_text()


def test_an_attention_that_adds_nothing_agrees_with_no_prediction(tmp_path: Path) -> None:
    loaded = small(2)
    for block in loaded.model.blocks:  # type: ignore[union-attr]
        torch.nn.init.zeros_(block.attn.proj.weight)
        torch.nn.init.zeros_(block.attn.proj.bias)
    subject = collected(loaded, "silent")
    assert subject.agreements["exponent"].count == 0
    assert math.isnan(subject.agreements["exponent"].accuracy)
    assert not any("attention’s steps" in finding.html() for finding in findings([subject]))
    assert "silent" in build_report([subject])
    assert save_figures(subject_figures([subject]), tmp_path, ["svg"])


def test_features_that_are_zero_everywhere_still_give_a_page() -> None:
    loaded = small(1)
    for parameter in loaded.model.parameters():
        torch.nn.init.zeros_(parameter)
    page = build_report([collected(loaded, "dead")])
    assert "undefined → <b>undefined</b>" in page


def test_padding_does_not_head_the_page() -> None:
    subject = collected(small(1), "padded")
    assert shared_policies([subject])[0] == "all"
    subject.measurement.notes.append("the inputs hold padding, which tokens='all' counts as tokens")
    assert shared_policies([subject]) == ["no-outliers", "all", "patches"]
    assert "(tokens but outliers and padding)" in build_report([subject])
