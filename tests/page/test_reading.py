"""What a reader of the page finds where a sentence or a number sends them."""

from __future__ import annotations

import json
import re
from pathlib import Path

from page.courses import Known
from page.person import Person

from unsmooth.page import build_report


def spaced(text: str) -> str:
    """With ordinary spaces."""
    return " ".join(text.split())


def follow(person: Person, figure: str) -> dict[str, str]:
    """Click on the last link of the findings that leads to a figure; gives what it should show."""
    link = f"[...document.querySelectorAll('.findings a[href=\"#{figure}\"]')].pop()"
    person.evaluate(f"{link}.click()")
    found: dict[str, str] = json.loads(str(person.evaluate(f"{link}.dataset.view")))
    return found


def chosen(person: Person, figure: str, control: str) -> str:
    """What a control of a figure is set to."""
    box = f"document.querySelector('#{figure} [data-control=\"{control}\"]')"
    return str(person.evaluate(f"({box}.querySelector('input:checked') || {box}.querySelector('select')).value"))


def test_a_link_sets_the_switches_of_its_figure_to_what_the_sentence_speaks_of(person: Person) -> None:
    assert (chosen(person, "histograms", "Folding"), chosen(person, "histograms", "Eigenvalues of")) == ("raw", "heads")
    follow(person, "histograms")
    assert (chosen(person, "histograms", "Folding"), chosen(person, "histograms", "Eigenvalues of")) == (
        "folded",
        "layer",
    )
    person.click("#shares .segmented label:nth-of-type(2) span")
    follow(person, "shares")
    assert chosen(person, "shares", "Which H") == "acting"
    person.click("#depth [data-control=Tokens] label:nth-of-type(2) span")
    assert chosen(person, "depth", "Tokens") == "patches"
    assert follow(person, "depth")["tokens"] == chosen(person, "depth", "Tokens") == "all"
    assert person.problems() == []


def test_a_link_to_the_steps_shows_its_model_without_outliers(browser: Person, tmp_path: Path) -> None:
    page = tmp_path / "sinks.html"
    curves = {"all": {"hfc_lfc": [2.0, 1.8, 9.0, 8.0]}, "no-outliers": {"hfc_lfc": [2.0, 1.7, 1.2, 1.0]}}
    known = [Known(name, curves, seed=seed, parts=[0.9, 0.1]) for seed, name in enumerate("ab")]
    page.write_text(build_report([each.subject() for each in known]), encoding="utf-8")
    browser.read(page)
    browser.click("#steps [data-control=Tokens] label:nth-of-type(2) span")
    browser.click("#steps [data-control=Reading] label:nth-of-type(2) span")
    view = follow(browser, "steps")  # that of the second model
    assert view == {"tokens": "no-outliers", "metric": "hfc_lfc", "reading": "residual", "model": "1"}
    for control in ("Reading", "Model", "Tokens"):
        assert chosen(browser, "steps", control) == view[control.lower()]
    assert "smooths" in spaced(browser.text(".findings"))
    assert browser.problems() == []


def test_the_words_of_a_finding_are_those_of_its_figure(person: Person) -> None:
    """`Most eigenvalues … are negative`: the figure that the link sets up says more than 60 %, zeros apart."""
    follow(person, "histograms")
    shares = re.findall(r"(\d+) % negative(?: and (\d+) % zero)?", spaced(person.seen("#histograms .reading")))
    said = re.findall(
        r"(Most|Nearly all|All|The) eigenvalues of H .*?(negative|positive|both sides)",
        spaced(str(person.evaluate("document.querySelector('.findings').textContent"))),
    )
    assert len(said) == len(shares) == 2
    for (_, side), (negative, zero) in zip(said, shares, strict=True):
        share = int(negative) / (100 - int(zero or 0))
        assert {"negative": share > 0.59, "positive": share < 0.41, "both sides": 0.39 < share < 0.61}[side]


def test_a_narrow_screen_shows_shares_with_their_intervals(browser: Person, page: Path) -> None:
    browser.read(page, width=390, mobile=True)
    shown = spaced(browser.seen("#shares svg.narrow text"))
    assert len(re.findall(r"type \(2\) in \d+ % of 12 cases, 95 % interval \d+ to \d+ %", shown)) == 2
    boxes = "[...document.querySelectorAll('#shares svg.narrow text')].map((t) => t.getBoundingClientRect().right)"
    assert max(browser.evaluate(boxes)) <= 390


def test_the_ends_of_the_colours_say_where_values_lie_beyond(person: Person) -> None:
    bar = person.text("#heads .colour-bar")
    cells = (
        "JSON.parse(document.querySelector('#data').textContent).models.flatMap((m) => m.explain.heads.exponent.flat())"
    )
    values = person.evaluate(cells)
    most = float(re.findall(r"\+([\d.e−-]+), sharpens", bar)[0].replace("−", "-"))
    assert ("≤" in bar, "≥" in bar) == (min(values) < -most, max(values) > most)
    assert max(map(abs, values)) > most  # a few far values do not make the others pale
