"""Findings about models that were really measured: names, pairs, numbers as text. Courses are in test_courses."""

from __future__ import annotations

import re

import pytest
import scipy.stats
import torch
from page.courses import Known, numbers, plain
from torch import Tensor, nn

import unsmooth
from unsmooth.analysis import Subject
from unsmooth.analysis.measuring.cells import Cell
from unsmooth.analysis.measuring.comparison import welch_half_width
from unsmooth.page.data import shared_policies
from unsmooth.page.words.findings import findings, margin
from unsmooth.page.words.glossary import glossary, linked
from unsmooth.page.words.phrases import number_text


def test_a_paragraph_for_each_model_then_the_comparison_and_last_what_one_could_do(subjects: list[Subject]) -> None:
    found = findings(subjects)
    order = [finding.about for finding in found if finding.about not in ("outliers", "who")]
    assert order == ["model", "model", "comparison", "certainty", "advice"]
    for finding in found:
        text = plain(re.sub("<b>.*?</b>", "", finding.html()))  # names apart
        assert len(numbers(text)) <= 3, text


def test_names_are_escaped_and_no_term_is_linked_inside_them() -> None:
    subject = Known("<i>H</i>", {"all": {"hfc_lfc": [2.0, 1.0]}}).subject()
    said = findings([subject])[0].html()
    assert said.startswith("<b>&lt;i&gt;H&lt;/i&gt;</b> ")
    assert '<a class="term" href="#term-hfc-lfc">HFC/LFC</a>' in said


def test_every_term_of_the_sentences_on_parts_leads_to_its_words() -> None:
    assert linked("the mean path of layer 0") == 'the <a class="term" href="#term-mean-path">mean path</a> of layer 0'
    assert 'id="term-mean-path"' in glossary()


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


class Loud(nn.Module):
    """An MLP that adds one token to itself many times, and little elsewhere."""

    def forward(self, x: Tensor) -> Tensor:
        return (0.01 * x).index_copy(1, torch.tensor([2]), 300 * x[:, 2:3])


def test_a_token_that_one_layer_makes_long_is_named_and_left_out() -> None:
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    model = timm.create_model("vit_tiny_patch16_224", img_size=64, embed_dim=24, num_heads=2, depth=3)
    quiet = unsmooth.measure(model, [torch.randn(6, 3, 64, 64)], tokens="all,no-outliers")
    assert shared_policies([Subject("quiet", quiet)])[0] == "all"
    model.blocks[1].mlp = Loud()
    loud = unsmooth.measure(model, [torch.randn(6, 3, 64, 64)], tokens="all,no-outliers")
    assert shared_policies([Subject("loud", loud)])[0] == "no-outliers"
    (said,) = (plain(f.html()) for f in findings([Subject("loud", loud)]) if f.about == "outliers")
    assert "the token at position 2 of every sample is " in said
    assert ": the MLP of layer 1 brings its norm to" in said
    assert numbers(said)[2] > 20


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
