"""The page as text: self-contained, escaped, complete."""

from __future__ import annotations

import base64
import dataclasses
import gzip
import json
import re

import pytest
from results import about_measured

from unsmooth.analysis import Subject
from unsmooth.analysis.measuring.cells import Cell
from unsmooth.analysis.measuring.measurement import SCHEMA
from unsmooth.errors import OptionError
from unsmooth.page import build_report
from unsmooth.page.build import SCRIPTS, STYLES, asset
from unsmooth.page.encode import number, packed, script_json
from unsmooth.page.sections import SECTIONS

EVIL = re.compile(r"<script>window|<img src=x|</style><img")


def test_it_names_no_address_and_loads_no_file(html: str) -> None:
    shell = re.sub(r'<script type="(application/json|text/plain)".*?</script>', "", html, flags=re.S)
    addresses = set(re.findall(r"https?://[^\s\"'<)]+", shell))
    assert addresses <= {"http://www.w3.org/2000/svg"}  # a name, never fetched
    assert not re.search(r"<(link|script|img|image|iframe)[^>]+(src|href)=[\"'](?!data:)", shell)
    assert not re.search(r"<use[^>]+href=[\"'](?!#)", shell)
    assert "default-src 'none'" in shell


def test_only_its_own_script_may_run(html: str) -> None:
    import hashlib

    script = re.findall(r"<script>(.*?)</script>", html, flags=re.S)
    assert len(script) == 1
    allowed = base64.b64encode(hashlib.sha256(script[0].encode()).digest()).decode()
    assert f"script-src 'sha256-{allowed}'" in html


def test_what_users_name_is_never_markup(html: str) -> None:
    assert not EVIL.search(html)
    assert "&lt;script&gt;window.hacked=1&lt;/script&gt;" in html


def test_data_in_a_script_cannot_end_it() -> None:
    hostile = {"</script>": "<!--\u2028\u2029&"}
    text = script_json(hostile)
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == hostile
    assert number(float("nan")) is None
    with pytest.raises(ValueError, match="not JSON compliant"):
        script_json(float("nan"))


def test_a_file_in_the_page_is_small_and_does_not_tell_when_it_was_packed() -> None:
    data = base64.b64decode(packed("λ" * 999))
    assert gzip.decompress(data).decode() == "λ" * 999
    assert len(data) < 100
    assert data[4:8] == bytes(4)  # where gzip keeps the time


def test_every_section_is_there_and_every_finding_points_to_one(html: str) -> None:
    for section in SECTIONS:
        assert f'<section id="{section.name}"' in html
    links = set(re.findall(r'<a href="#([a-z]+)"', html))
    assert links <= set(re.findall(r'id="([a-z]+)"', html))
    findings = re.search(r'<div class="findings">(.*?)</div>', html, flags=re.S)
    assert findings is not None
    assert findings[1].count('<p class="model">') == 2
    for paragraph in re.findall(r'<p class="(?:model|comparison)">.*?</p>', findings[1]):
        assert 'class="figure-link"' in paragraph


def test_every_term_leads_to_its_sentence(html: str) -> None:
    terms = set(re.findall(r'href="#(term-[a-z0-9-]+)"', html))
    assert terms == set(re.findall(r'id="(term-[a-z0-9-]+)"', html))
    assert html.index('class="glossary"') < html.index('id="depth"')
    prose = "".join(re.findall(r'<p class="lede">(.*?)</p>|<h2.*?>(.*?)</h2>', html)[0])
    bare = re.sub(r"<a class=\"term\".*?</a>|<[^>]*>", "", prose)
    assert not re.search(r"HFC|cosine similarity|effective rank|γ|\bH\b", bare)


def test_the_first_look_lays_the_curves_of_all_models_over_each_other(html: str, subjects: list[Subject]) -> None:
    overlays = re.findall(r'<svg class="chart overlay".*?</svg>', html, flags=re.S)
    assert len(overlays) == 3  # HFC/LFC, cosine similarity, effective rank
    for overlay, metric in zip(overlays, ("hfc_lfc", "cosine_similarity", "effective_rank"), strict=True):
        heights = [float(y) for y in re.findall(r'd="m[\d.]+ ([\d.]+)h0"', overlay)]
        last = [s.measurement.cells[Cell("blocks.2.post", metric, "all")].mean for s in subjects]
        assert len(heights) == len(subjects)
        assert (heights[0] < heights[1]) == (last[0] > last[1])  # higher values are drawn higher
        assert {f"var(--model-{i})" for i in (0, 1)} <= set(re.findall(r'stroke="(var\(--model-\d\))"', overlay))
    assert html.index('class="chart overlay"') < html.index('class="findings"') < html.index('id="depth"')


def test_it_says_what_was_analysed_on_what(html: str) -> None:
    said = re.search(r'<p class="subject">(.*?)</p>', html)
    assert said is not None
    assert said[1] == (
        "2 models, each a VisionTransformer with 3 layers of width 24, measured on the pictures that come with "
        "unsmooth (4 samples)."
    )


def test_without_an_explanation_its_sections_are_left_out(unexplained: Subject) -> None:
    page = build_report([unexplained])
    assert 'id="depth"' in page
    assert 'id="playground"' in page
    for section in SECTIONS:
        if section.needs in ("explain", "tokens"):
            assert f'<section id="{section.name}"' not in page


def test_the_raw_results_can_be_taken_out_again(html: str, subjects: list[Subject]) -> None:
    results = re.search(r'id="file-results-json">([^<]+)<', html)
    assert results is not None
    raw = json.loads(gzip.decompress(base64.b64decode(results[1])))
    assert [model["name"] for model in raw] == [subject.name for subject in subjects]
    assert raw[0]["measurement"]["schema"] == SCHEMA
    assert len(raw[0]["measurement"]["cells"]) == len(subjects[0].measurement.cells)
    table = re.search(r'id="file-measurements-csv">([^<]+)<', html)
    assert table is not None
    lines = gzip.decompress(base64.b64decode(table[1])).decode().splitlines()
    assert len(lines) >= 1 + sum(len(subject.measurement.cells) for subject in subjects)


def test_the_same_subjects_give_the_same_page(html: str, subjects: list[Subject]) -> None:
    command = re.search(r"<pre>(.*?)</pre>", html)
    assert command is not None
    again = build_report(subjects, command="x")
    assert len(again) == len(html) - len(command[1]) + 1


def test_two_models_of_one_name_are_refused(subjects: list[Subject]) -> None:
    with pytest.raises(OptionError, match="need different names, got 'plain', 'plain'"):
        build_report([subjects[0], subjects[0]])


def test_no_model_is_refused() -> None:
    with pytest.raises(OptionError, match="at least one model"):
        build_report([])


def test_models_without_a_common_metric_are_refused(subjects: list[Subject]) -> None:
    first = subjects[0]
    about = about_measured(settings={"metrics": []})
    other = dataclasses.replace(first, name="b", measurement=dataclasses.replace(first.measurement, about=about))
    with pytest.raises(OptionError, match="must share a metric and a token policy"):
        build_report([first, other])


def test_every_asset_is_used_and_markup_is_never_made_from_text() -> None:
    from importlib.resources import files

    names = {path.name for path in files("unsmooth.page").joinpath("assets").iterdir()}
    scripts = (*SCRIPTS, "track.js")  # that of the page on a training's course
    assert names == {*scripts, *STYLES}
    packed = "element.innerHTML = parts[i];"  # the page's own markup, escaped in Python; EVIL is among it
    for name in scripts:
        script = asset(name).replace(packed, "", 1)
        assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|outerHTML|eval\(|fetch\(", script), name
