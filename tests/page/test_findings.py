"""Findings about models that were really measured: names, pairs, numbers as text. Courses are in test_courses."""

from __future__ import annotations

import re

import pytest
import scipy.stats
import torch
from page.courses import Known, numbers, plain

import unsmooth
from unsmooth.analysis import Subject
from unsmooth.analysis.comparison import welch_half_width
from unsmooth.analysis.measurement import Cell
from unsmooth.page.findings import findings, margin
from unsmooth.page.words import number_text


def test_a_paragraph_for_each_model_then_the_comparison_and_last_what_one_could_do(subjects: list[Subject]) -> None:
    found = findings(subjects)
    order = [finding.about for finding in found if finding.about != "outliers"]
    assert order == ["model", "model", "comparison", "certainty", "advice"]
    for finding in found:
        text = plain(re.sub("<b>.*?</b>", "", finding.html()))  # names apart
        assert len(numbers(text)) <= 3, text


def test_names_are_escaped_and_no_term_is_linked_inside_them() -> None:
    subject = Known("<i>H</i>", {"all": {"hfc_lfc": [2.0, 1.0]}}).subject()
    said = findings([subject])[0].html()
    assert said.startswith("<b>&lt;i&gt;H&lt;/i&gt;</b> ")
    assert '<a class="term" href="#term-hfc-lfc">HFC/LFC</a>' in said


def test_the_margin_of_the_same_inputs_is_that_of_pairs() -> None:
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    sizes = {"img_size": 32, "embed_dim": 24, "num_heads": 2}
    one, two = (timm.create_model("vit_tiny_patch16_224", depth=depth, **sizes) for depth in (2, 3))
    batch = torch.randn(6, 3, 32, 32)
    subjects = [Subject(name, unsmooth.measure(model, [batch])) for name, model in (("one", one), ("two", two))]
    cells = [Cell(f"blocks.{last}.post", "hfc_lfc", "all") for last in (1, 2)]
    values = [s.measurement.per_sample[cell] for s, cell in zip(subjects, cells, strict=True)]  # type: ignore[index]
    interval = scipy.stats.ttest_rel(*values).confidence_interval(0.95)
    expected = float(interval.high - interval.low) / 2
    assert margin(subjects[0], subjects[1], "hfc_lfc", "all") == pytest.approx(expected, rel=1e-6)
    turned = Subject("two", unsmooth.measure(two, [batch[torch.tensor([2, 0, 1, 5, 4, 3])]]))
    for first, second in ((subjects[0], turned), (turned, subjects[0])):
        assert margin(first, second, "hfc_lfc", "all") == pytest.approx(expected, rel=1e-4)
    others = Subject("two", unsmooth.measure(two, [torch.randn(6, 3, 32, 32)]))
    welch = welch_half_width(subjects[0].measurement.cells[cells[0]], others.measurement.cells[cells[1]])
    assert margin(subjects[0], others, "hfc_lfc", "all") == welch


def test_smoothing_is_never_judged(subjects: list[Subject]) -> None:
    said = plain(" ".join(finding.html() for finding in findings(subjects)))
    assert not re.search(r"\b(bad|poor|suffers?|problem|harmful|unfortunately|healthy|degrad)", said)


def test_numbers_read_as_text() -> None:
    assert number_text(0.00001234) == "1.23e−05"
    assert number_text(-1500.0) == "−1500"
    assert number_text(float("inf")) == "∞"
    assert number_text(float("-inf")) == "−∞"
    assert number_text(float("nan")) == "undefined"
    assert number_text(0.0) == "0"
