"""The page of two measurements: what stands in its tables, and where its figure puts it."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from cli.conftest import measured

import unsmooth
from unsmooth.figures.palette import style_sheet
from unsmooth.page.build import STYLES, asset
from unsmooth.page.comparison import comparison_page, finding

pytest.importorskip("timm")


def cells(page: str) -> list[list[str]]:
    """The rows of all tables."""
    return [re.findall("<td>(.*?)</td>", row) for row in re.findall(r"<tr class=.*?</tr>", page)]


def test_the_tables_hold_both_values_their_difference_and_its_interval() -> None:
    a, b = measured(), measured(seed=1)
    next(iter(a.cells.values())).mean = 0.8
    frame = unsmooth.compare(a, b)
    page = comparison_page(a, b, ("a", "b"))
    order = list(dict.fromkeys(frame["metric"]))
    rows = frame.sort_values("metric", key=lambda names: names.map(order.index), kind="stable").to_dict("records")
    for (point, *shown), row in zip(cells(page), rows, strict=True):
        assert point == row["point"]
        assert not any("-" in text for text in shown)  # a minus sign is none
        found = [float(text.replace("−", "-")) for each in shown for text in each.split(" … ")]
        assert found == pytest.approx([row[name] for name in ("a", "b", "difference", "low", "high")], rel=1e-3)
    assert "0.8000" in {row[1] for row in cells(page)}  # as many digits as the others have
    assert page.count('<tr class="differs">') == frame["differs"].sum()
    assert '<h1>b against a</h1><p class="subject">Differences are b − a.' in page


def test_points_choose_and_one_sample_has_no_interval() -> None:
    page = comparison_page(measured(samples=1), measured(seed=1, samples=1), ("a", "b"), ["blocks.1.post"])
    assert [(row[0], row[-1]) for row in cells(page)] == 3 * [("blocks.1.post", "no interval")]


def test_both_sides_say_where_they_come_from_and_an_interruption() -> None:
    a, b = measured(), measured(seed=1, samples=3)
    b.partial = True
    a.about = replace(a.about, model=replace(a.about.model, weights="0123456789abcdefXYZ"))
    page = comparison_page(a, b, ("a", "b"))
    first, second = re.findall('<p class="caption"><b>.*?</p>', page)
    assert "<b>a</b>" in first
    assert "weights: 0123456789abcdef · data: not recorded · measured on: 4 samples" in first
    assert "interrupted" not in first
    assert "<b>b</b>" in second
    assert "measured on: 3 samples" in second
    assert "partial: yes: its measurement was interrupted" in second


def test_it_looks_like_the_report_and_runs_no_script() -> None:
    page = comparison_page(measured(), measured(seed=1), ("a", "b"))
    assert style_sheet() in page
    assert all(asset(name) in page for name in STYLES)
    assert "script-src 'none'" in page
    assert page.count('class="chart wide"') == page.count('class="chart narrow"') == 3
    assert "b is smoother" in page
    assert page.count("How far the tokens of a sample are from their mean") == 1  # a metric is said in words
    assert "<title>blocks.1.post: " in page  # said when it is pointed at


def test_a_hostile_name_is_harmless_where_the_two_differ() -> None:
    a, b = measured(), measured(seed=1)
    for moments in b.cells.values():
        moments.mean += 100
    b.per_sample = None
    page = comparison_page(a, b, ("<i>a</i>", "<i>b</i>"))
    assert page.count("&lt;i&gt;b&lt;/i&gt; differs from &lt;i&gt;a&lt;/i&gt; at") == 3
    assert "<i>a" not in page
    assert "<i>b" not in page


class Strict(HTMLParser):
    """Every tag that opens is closed; remembers tags and addresses."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.addresses: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "br", "link"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_page_is_whole_needs_nothing_and_escapes_names() -> None:
    a, b = measured(), measured(seed=1)
    evil = "<script>alert(1)</script>"
    b.about = replace(
        b.about, model=replace(b.about.model, reference=evil), data=replace(b.about.data, reference='"><img src=x>')
    )
    page = comparison_page(a, b, ("plain", evil))
    parsed = Strict(page)
    assert parsed.open == []
    assert parsed.addresses == ["data:,"]  # no icon is asked for
    assert not {"script", "img"} & set(parsed.seen)
    assert parsed.seen.count("svg") == 2 * 3  # wide and narrow
    assert parsed.seen.count("title") == 1 + 2 * len(a.cells)  # every point says its numbers
    assert "&lt;script&gt;" in page


def test_one_sample_has_no_interval_and_the_page_still_draws() -> None:
    page = comparison_page(measured(samples=1), measured(seed=1, samples=1), ("a", "b"), ["embed"])
    assert "1 point without an interval" in page
    assert Strict(page).seen.count("title") == 1 + 2 * 3


def test_finding_counts_and_names_the_largest() -> None:
    import pandas as pd

    rows = pd.DataFrame(
        [("p", 1.0, 0.5, 1.5, True, "a"), ("q", -3.0, -4.0, -2.0, True, "b"), ("r", 9.0, -9.0, 27.0, False, "")],
        columns=["point", "difference", "low", "high", "differs", "smoother"],
    )
    assert finding(rows, ("A", "B")) == (
        "B differs from A at 2 of 3 points (smoother at 1, sharper at 1), most at q: −3 [−4, −2]."
    )
