"""Value heads that are shared leave H with many eigenvalues that are 0: they stand on neither side."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from page.person import Person

from unsmooth.analysis import Subject, analyse
from unsmooth.figures.drawing import INK, SHARP, SMOOTH, ZERO
from unsmooth.figures.export import figures
from unsmooth.figures.spectra import SIDES, spectra_figure
from unsmooth.page import build_report
from unsmooth.page.findings import findings
from unsmooth.sources import Data, LoadedModel


@pytest.fixture(scope="module")
def llama() -> Subject:
    """Four heads of 8 features share one value head: H of width 32 has rank 8."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "vocab_size": 40}
    config = transformers.LlamaConfig(num_attention_heads=4, num_key_value_heads=1, **sizes)

    def make() -> Iterator[dict[str, torch.Tensor]]:
        ids = torch.randint(1, 40, (2, 9), generator=torch.Generator().manual_seed(0))
        yield {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    loaded = LoadedModel(transformers.LlamaModel(config).eval(), "hf:tiny", "text")
    return analyse(loaded, Data("ids", "text", make, 2), "llama")


def plain(text: str) -> str:
    """With ordinary spaces."""
    return " ".join(text.split())


def test_the_finding_says_how_many_are_zero(llama: Subject) -> None:
    assert llama.explanation is not None
    values = torch.cat([row["layer_values"] for row in llama.explanation.spectra if row["folded"]])
    left = int(((values.real < 0) & (values.abs() > 1e-9)).sum()) / len(values)
    right = int(((values.real > 0) & (values.abs() > 1e-9)).sum()) / len(values)
    said = plain(" ".join(finding.html() for finding in findings([llama])))
    side = (
        "on both sides"
        if 0.4 < left / (left + right) <= 0.6
        else "sharpening side"
        if left > right
        else "smoothing side"
    )
    assert side in said
    assert "(zeros, of which there are many, apart)" in said


@pytest.fixture
def reader(llama: Subject, browser: Person, tmp_path: Path) -> Person:
    """Somebody who has just opened the page about it."""
    path = tmp_path / "llama.html"
    path.write_text(build_report([llama]), encoding="utf-8")
    browser.read(path)
    return browser


def test_the_page_counts_as_the_finding_does(reader: Person) -> None:
    read = plain(reader.text("#spectra .reading"))
    assert read.count("lie left of zero and 75 % at it") == 2  # before and after folding
    reader.click("#histograms .segmented:nth-of-type(2) label:nth-of-type(2) span")  # Σ heads
    assert " negative and 75 % zero of 64 eigenvalues" in plain(reader.text("#histograms .reading"))
    assert reader.problems() == []


def test_zeros_have_a_colour_and_an_entry_of_their_own(reader: Person) -> None:
    dots = "[p.className.baseVal, p.getAttribute('d').split('M').length - 1]"
    drawn = dict(reader.evaluate(f"[...document.querySelectorAll('#spectra .folded path')].map((p) => {dots})"))
    assert drawn["zero"] == 24
    assert drawn["sharp"] + drawn["smooth"] + drawn.get("far", 0) == 8
    colour = "getComputedStyle(document.querySelector('#spectra {}')).{}"
    sides = ("sharp", "smooth", "zero")
    shades = {name: reader.evaluate(colour.format(f".folded .{name}", "stroke")) for name in sides}
    assert len(set(shades.values())) == 3
    assert shades["zero"] == reader.evaluate(colour.format(".key .fill-zero", "backgroundColor"))
    assert "zero: a direction that H takes away" in reader.text("#spectra .key")


def test_where_no_eigenvalue_is_zero_there_is_no_entry(person: Person) -> None:
    assert person.text("#spectra .key") == "left of zeroright of zero"


def test_the_figure_for_a_paper_has_the_same_colours(llama: Subject) -> None:
    drawing = dict(figures([llama]))["spectra-llama"]
    dots = dict.fromkeys((SHARP, SMOOTH, ZERO, INK), 0)
    for part in drawing.parts:
        for colour in dots:
            dots[colour] += part.count("h0") if f'stroke="{colour}"' in part else 0
    far = dots[INK] - 2 - ("outside the frame" in drawing.svg())  # beside a rim for each layer, and the key's own dot
    assert dots[ZERO] == 2 * 24 + 1
    assert dots[SHARP] + dots[SMOOTH] + far == 2 * 8 + 2
    assert "zero: a direction that H takes away" in drawing.svg()


def test_the_figure_of_a_layer_without_zeros_has_no_entry_for_them() -> None:
    many = [0.1] * 200  # so that one far eigenvalue does not set the frame
    values = {"layer": {"re": [-0.5, 90.0, *many], "im": [0.0, 0.0, *many]}}
    svg = spectra_figure({"name": "x", "explain": {"spectra": [{"layer": 0, "raw": values}]}}).svg()
    left, right, far, _ = SIDES
    assert [side for side in SIDES if side in svg] == [left, right, far]


def test_one_zero_of_centring_is_not_worth_a_word(subjects: list[Subject]) -> None:
    assert "zeros" not in " ".join(finding.html() for finding in findings(subjects))
