"""Value heads that are shared leave H with many eigenvalues that are 0: they stand on neither side."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from report.person import Person

from unsmooth.data import Data
from unsmooth.models import LoadedModel
from unsmooth.report import Subject, build_report, collect
from unsmooth.report.findings import findings


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
    return collect(loaded, Data("ids", "text", make, 2), "llama")


def plain(text: str) -> str:
    """With ordinary spaces."""
    return " ".join(text.split())


def test_the_finding_says_how_many_are_zero(llama: Subject) -> None:
    assert llama.explanation is not None
    values = torch.cat([row["layer_values"] for row in llama.explanation.spectra if row["folded"]])
    left = int(((values.real < 0) & (values.abs() > 1e-9)).sum()) / len(values)
    said = plain(" ".join(finding.html for finding in findings([llama])))
    assert f"the sharpening side, is {100 * left:.0f} % (75 % are zero)" in said


def test_the_page_counts_as_the_finding_does(llama: Subject, browser: Person, tmp_path: Path) -> None:
    path = tmp_path / "llama.html"
    path.write_text(build_report([llama]), encoding="utf-8")
    browser.read(path)
    read = plain(browser.text("#spectra .reading"))
    assert read.count("lie left of zero and 75 % at it") == 2  # before and after folding
    assert browser.problems() == []


def test_one_zero_of_centring_is_not_worth_a_word(subjects: list[Subject]) -> None:
    assert "are zero" not in " ".join(finding.html for finding in findings(subjects))
