"""Value heads that are shared leave H with many eigenvalues that are 0: they stand on neither side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from page.courses import Known
from page.person import Person

import unsmooth
from unsmooth.analysis import Subject, analyse
from unsmooth.page import build_report
from unsmooth.page.words.findings import findings
from unsmooth.page.words.theory import eigenvalue_shares
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
    assert " negative and 75 % zero of 64 eigenvalues" in plain(reader.seen("#histograms .reading"))
    assert reader.problems() == []


def test_zeros_have_a_colour_and_an_entry_of_their_own(reader: Person) -> None:
    svg = "#spectra [data-when]:not([hidden]) svg.wide [data-cloud=folded] path"
    dots = "[p.getAttribute('stroke'), p.getAttribute('d').split('h0').length - 1, getComputedStyle(p).stroke]"
    drawn = reader.evaluate(f"[...document.querySelectorAll('{svg}')].map((p) => {dots})")
    counts = {stroke: count for stroke, count, _ in drawn}
    assert counts["var(--zero)"] == 1  # 24 in one spot
    assert sum(counts.get(f"var(--{side})", 0) for side in ("sharp", "smooth")) <= 8
    shades = {stroke: shade for stroke, _, shade in drawn}
    assert len({shades[f"var(--{name})"] for name in ("sharp", "smooth", "zero")}) == 3
    key = "[...document.querySelectorAll('#spectra .key i')].map((e) => getComputedStyle(e).backgroundColor)"
    assert shades["var(--zero)"] in reader.evaluate(key)
    assert "zero: a direction that H takes away" in reader.seen("#spectra .key")


def test_where_no_eigenvalue_is_zero_there_is_no_entry(person: Person) -> None:
    person.click(
        "#spectra [data-control='Eigenvalues of'] label:nth-of-type(2) span"
    )  # no head has the zero of centring
    assert person.seen("#spectra .key") == "left of zeroright of zero"


def test_one_zero_of_centring_is_not_worth_a_word(subjects: list[Subject]) -> None:
    assert "zeros" not in " ".join(finding.html() for finding in findings(subjects))


@pytest.mark.parametrize(("mode", "side"), [("sharpening", "negative"), ("smoothing", "positive")])
def test_what_rounding_to_32_bits_leaves_of_a_zero_is_on_neither_side(mode: str, side: str) -> None:
    """Half of Λ is clipped to 0, and what heads write beside V is read by no value, up to rounding."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 8, "num_hidden_layers": 2, "vocab_size": 40}
    model = transformers.LlamaModel(transformers.LlamaConfig(num_attention_heads=4, num_key_value_heads=2, **sizes))
    unsmooth.reparametrize(model, mode, form="eigen")
    subject = analyse(model, [torch.randint(40, (2, 9))], metrics="hfc_lfc", tokens="all")
    assert subject.explanation is not None
    shares = eigenvalue_shares(subject.explanation)
    assert shares[0 if mode == "smoothing" else 1] == 0
    assert f"All eigenvalues of H with normalisation folded in are {side}" in plain(
        findings([subject])[0].html()
    ).replace('<a class="term" href="#term-h">H</a>', "H")
    falls, rises = (Known("m", {"all": {"hfc_lfc": c}}).subject() for c in ([3.0, 2.0, 1.0], [1.0, 2.0, 3.0]))
    advice = [findings([replace(each, explanation=subject.explanation)])[-1].html() for each in (falls, rises)]
    assert ["reparametrize" in each for each in advice] == [mode == "smoothing", mode == "sharpening"]
    assert ("on the sharpening side already" in advice[0]) == (mode == "sharpening")
