"""A page about parallel residuals: it opens, its steps are of the sum, and its words say so."""

from __future__ import annotations

from pathlib import Path

import pytest
from model_cases import CASES
from page.person import Person

from unsmooth.analysis import Subject, analyse
from unsmooth.analysis.measuring.changes import TOGETHER
from unsmooth.page import build_report
from unsmooth.page.course import course
from unsmooth.page.words.findings import findings
from unsmooth.sources import load_model, open_data


@pytest.fixture(scope="module")
def parallel(tmp_path_factory: pytest.TempPathFactory) -> list[Subject]:
    """Pythia in small, and a block that shares one norm."""
    found = []
    for name in ("gpt-neox", "gptj"):
        folder = tmp_path_factory.mktemp(name)
        next(case for case in CASES if case.name == name).model().save_pretrained(folder)
        loaded = load_model(f"hf:{folder}")
        data = open_data("random", loaded, samples=4, max_length=12)
        found.append(analyse(loaded, data, name, metrics="paper", explain_inputs=2))
    return found


def test_findings_do_not_tell_apart_what_is_one_sum(parallel: list[Subject]) -> None:
    said = " ".join(finding.html() for finding in findings(parallel[:1]))
    moved = any(stretch.way for stretch in course(parallel[0].measurement, "hfc_lfc", "all"))
    assert ("adds attention and MLP in one sum" in said) == moved
    assert "comes from" not in said
    assert "attention’s steps" in said


def test_advice_says_that_it_reaches_attention_alone(parallel: list[Subject]) -> None:
    said = [" ".join(finding.html() for finding in findings([subject])) for subject in parallel]
    advised = [text for text in said if "where tokens must stay apart" in text]
    assert advised
    assert all("all of these reach attention alone: <code>unsmooth attribute</code>" in text for text in advised)


def test_the_verdict_is_that_of_the_change_of_the_sum(parallel: list[Subject]) -> None:
    measurement = parallel[0].measurement
    change = next(
        moments for key, moments in measurement.changes.items()
        if key.reading == "residual" and key.kind == TOGETHER and key.metric == "hfc_lfc" and key.tokens == "all"
    )  # fmt: skip
    stretches = course(measurement, "hfc_lfc", "all")
    through = sum(stretch.after - stretch.before for stretch in stretches)
    assert through == pytest.approx(change.mean * measurement.about.model.layers, rel=1e-6, abs=1e-9)


def test_the_page_says_where_the_norms_are(parallel: list[Subject]) -> None:
    html = build_report(parallel, command="unsmooth report")
    assert "family hf-gpt-neox, pre-norm, attention and MLP in parallel<" in html
    assert "family hf-gptj, pre-norm, attention and MLP in parallel behind one norm<" in html
    assert "not explained" not in html


@pytest.mark.parametrize("reading", ["residual", "chain"])
def test_the_steps_are_drawn_and_named(parallel: list[Subject], browser: Person, tmp_path: Path, reading: str) -> None:
    page = tmp_path / "page.html"
    page.write_text(build_report(parallel, command="unsmooth report"), encoding="utf-8")
    browser.read(page)
    index = 0 if reading == "residual" else 1
    browser.evaluate(
        f"document.querySelectorAll('#steps .segmented')[0].querySelectorAll('span')[{index}].id = 'reading'"
    )
    browser.click("#reading")
    paths = "[...document.querySelectorAll('#steps-chart svg.wide path')].filter((e) => e.getClientRects().length)"
    bars = browser.evaluate(f"{paths}.map((p) => p.getAttribute('d').split('z').length - 1).reduce((a, b) => a + b)")
    assert bars == (3 if reading == "residual" else 12)
    key = browser.seen("#steps .key")
    assert TOGETHER in key
    assert ("LayerNorm" in key) == (reading == "chain")
    table = browser.seen("#kinds-table table")
    assert TOGETHER in table
    assert "not measured" not in table
    assert browser.problems() == []
