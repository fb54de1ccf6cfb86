"""What a reader of the page finds where a sentence or a number sends them."""

from __future__ import annotations

import re
from pathlib import Path

from page.person import Person


def spaced(text: str) -> str:
    """With ordinary spaces."""
    return " ".join(text.split())


def said(person: Person, figure: str) -> str:
    """The finding that links to a figure."""
    return spaced(
        str(person.evaluate(f"document.querySelector('.findings a[href=\"#{figure}\"]').parentNode.textContent"))
    )


def test_the_share_of_a_finding_stands_in_its_figure_as_the_link_says(person: Person) -> None:
    finding = said(person, "histograms")
    assert finding.endswith("Figure 4 (after, Σ heads)")
    for group in (1, 2):
        person.click(f"#histograms .segmented:nth-of-type({group}) label:nth-of-type(2) span")
    shown = re.findall(r"(\d+ %) negative", spaced(person.text("#histograms .figure-body")))
    assert re.findall(r"(\d+ %)", finding) == shown


def test_the_types_of_a_finding_stand_in_its_figure_by_both_counts(person: Person) -> None:
    acting, _, paper = said(person, "shares").partition(" as H acts and ")
    cases = r"(\d+ %) of (?:\d+ )?cases"
    for option, text in ((1, acting), (2, paper)):
        person.click(f"#shares .segmented label:nth-of-type({option}) span")
        assert re.findall(cases, text) == re.findall(cases, spaced(person.text("#shares .figure-body")))


def test_a_narrow_screen_shows_shares_with_their_intervals(browser: Person, page: Path) -> None:
    browser.read(page, width=390, mobile=True)
    shown = spaced(browser.text("#shares .figure-body"))
    assert len(re.findall(r"type \(2\) in \d+ % of 12 cases, 95 % interval \d+ % to \d+ %", shown)) == 2
    boxes = "[...document.querySelectorAll('#shares .chart text')].map((t) => t.getBoundingClientRect().right)"
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
