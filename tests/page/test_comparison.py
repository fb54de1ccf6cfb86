"""The page of two measurements: what stands in its tables, and where its figure puts it."""

from __future__ import annotations

import re
from dataclasses import replace

import pandas as pd
import pytest
from cli.test_compare import measured

import unsmooth
from unsmooth.page.comparison import _figure, comparison_page

pytest.importorskip("timm")
NAN = float("nan")


def cells(page: str) -> list[list[str]]:
    """The rows of all tables."""
    return [re.findall("<td>(.*?)</td>", row) for row in re.findall(r"<tr class=.*?</tr>", page)]


def test_the_tables_hold_both_values_their_difference_and_its_interval() -> None:
    a, b = measured(), measured(seed=1)
    frame = unsmooth.compare(a, b)
    page = comparison_page(a, b, ("a", "b"))
    assert cells(page) == [
        [row["point"], f"{row['a']:.4g}", f"{row['b']:.4g}", f"{row['difference']:+.4g}",
         f"{row['low']:+.4g} … {row['high']:+.4g}"]
        for row in frame.sort_values("metric", key=lambda m: m.map(list(dict.fromkeys(m)).index), kind="stable")
        .to_dict("records")
    ]  # fmt: skip
    assert page.count('<tr class="differs">') == frame["differs"].sum()
    assert "<h1>b against a</h1><p>Differences are b − a." in page.replace("\n", "")


def test_points_choose_and_one_sample_has_no_interval() -> None:
    page = comparison_page(measured(samples=1), measured(seed=1, samples=1), ("a", "b"), ["blocks.1.post"])
    assert [(row[0], row[-1]) for row in cells(page)] == 3 * [("blocks.1.post", "no interval")]


def test_both_sides_say_where_they_come_from_and_an_interruption() -> None:
    a, b = measured(), measured(seed=1, samples=3)
    b.partial = True
    a.about = replace(a.about, model=replace(a.about.model, weights="0123456789abcdefXYZ"))
    page = comparison_page(a, b, ("a", "b"))
    first, second = re.findall("<p><strong>.*?</p>", page)
    assert "<strong>a</strong>" in first
    assert "weights: 0123456789abcdef · data: not recorded · samples: 4" in first
    assert "interrupted" not in first
    assert "<strong>b</strong>" in second
    assert "samples: 3" in second
    assert "partial: yes: its measurement was interrupted" in second


def figure(*rows: tuple[str, float, float, float, bool]) -> str:
    return _figure(pd.DataFrame(rows, columns=["point", "difference", "low", "high", "differs"]), "M")


def test_the_figure_puts_differences_and_intervals_to_scale() -> None:
    drawn = figure(
        ("p", 2.0, 1.0, 3.0, True), ("q", -1.0, -2.0, 0.5, False), ("gone", NAN, NAN, NAN, False),
        ("r", -3.0, -4.0, -2.0, True), ("s", 1.0, NAN, NAN, False),
    )  # fmt: skip

    def height(value: float) -> str:
        return f"{15 + 180 * (3 - value) / 7:.1f}"  # from 15 at the top, 3, to 195 at the bottom, −4

    circles = re.findall(r'<circle class="(\w+)" cx="(.*?)" cy="(.*?)"', drawn)
    places = [f"{80 + 810 * (i + 0.5) / 4:.1f}" for i in range(4)]
    kinds = ["up", "same", "down", "same"]
    assert circles == [(kind, x, height(value)) for kind, x, value in zip(kinds, places, (2, -1, -3, 1), strict=True)]
    bars = re.findall(r'class="bar" x1="(.*?)" x2="(.*?)" y1="(.*?)" y2="(.*?)"', drawn)
    ends = ((1, 3), (-2, 0.5), (-4, -2), (1, 1))  # what has no interval has no bar
    assert bars == [(x, x, height(low), height(high)) for x, (low, high) in zip(places, ends, strict=True)]
    assert f'class="axis" x1="70" x2="900" y1="{height(0)}" y2="{height(0)}"' in drawn
    assert re.findall(r'text-anchor="end">([+−\d]+)<', drawn) == ["+3", "−4", "0"]
    assert f'x="{places[0]}" y="215" text-anchor="start">p<' in drawn
    assert f'x="{places[3]}" y="215" text-anchor="end">s<' in drawn
    assert "<title>q: -1 (-2 … +0.5)</title>" in drawn
    assert "<title>s: +1 (no interval)</title>" in drawn
    assert 'aria-label="Difference in M along the forward pass"' in drawn


def test_a_label_does_not_lie_on_that_of_zero_and_nothing_is_drawn_of_nothing() -> None:
    close = figure(("p", 1.0, 0.9, 1.1, True), ("q", -0.05, -0.06, -0.04, True))
    assert re.findall(r'text-anchor="end">([+−\d.]+)<', close) == ["+1.1", "0"]
    flat = figure(("p", 0.0, 0.0, 0.0, False))
    assert re.findall(r'text-anchor="end">([+−\d.]+)<', flat) == ["0"]
    assert re.findall(r'text-anchor="(\w+)">p<', flat) == ["middle"]
    assert "nan" not in figure(("p", 1.0, NAN, NAN, False), ("q", 2.0, 1.0, 3.0, True))
    assert figure(("p", NAN, NAN, NAN, False)) == "<p>No finite difference to draw.</p>"


def test_a_hostile_name_is_harmless_where_the_two_differ() -> None:
    a, b = measured(), measured(seed=1)
    for moments in b.cells.values():
        moments.mean += 100
    b.per_sample = None
    page = comparison_page(a, b, ("<i>a</i>", "<i>b</i>"))
    assert page.count("&lt;i&gt;b&lt;/i&gt; differs from &lt;i&gt;a&lt;/i&gt; at") == 3
    assert "<i>" not in page
