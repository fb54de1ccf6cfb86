"""The page of two measurements: what stands in its tables, and where its figure puts it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from cli.test_compare import measured

import unsmooth
from unsmooth.figures.palette import style_sheet
from unsmooth.page.build import STYLES, asset
from unsmooth.page.comparison import comparison_page

pytest.importorskip("timm")


def cells(page: str) -> list[list[str]]:
    """The rows of all tables."""
    return [re.findall("<td>(.*?)</td>", row) for row in re.findall(r"<tr class=.*?</tr>", page)]


def test_the_tables_hold_both_values_their_difference_and_its_interval() -> None:
    a, b = measured(), measured(seed=1)
    frame = unsmooth.compare(a, b)
    page = comparison_page(a, b, ("a", "b"))
    assert cells(page) == [
        [row["point"], f"{row['a']:.4g}", f"{row['b']:.4g}", f"{row['difference']:+.4g}".replace("-", "−"),
         f"{row['low']:+.4g} … {row['high']:+.4g}".replace("-", "−")]
        for row in frame.sort_values("metric", key=lambda m: m.map(list(dict.fromkeys(m)).index), kind="stable")
        .to_dict("records")
    ]  # fmt: skip
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
