"""One walk over the data, and models that are harder than most."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from page.conftest import tiny
from page.person import Person
from results import view_tokens

from unsmooth.analysis import Subject, analyse, measure
from unsmooth.analysis.measuring.cells import Cell
from unsmooth.errors import FeatureError, OptionError, WeightsError
from unsmooth.metrics.registry import METRICS
from unsmooth.page import build_report
from unsmooth.page.words.findings import findings
from unsmooth.sources import Data, LoadedModel


def images(count: int, batch_size: int = 4) -> Data:
    def make() -> Iterator[torch.Tensor]:
        generator = torch.Generator().manual_seed(1)
        yield from torch.randn(count, 3, 64, 64, generator=generator).split(batch_size)

    return Data("noise", "images", make, count)


def test_the_data_is_read_once_and_only_the_first_inputs_are_explained() -> None:
    walks: list[str] = []

    def track(batches: Iterable[Any], label: str, total: int | None) -> Iterable[Any]:
        walks.append(f"{label} {total}")
        return batches

    reads = 0

    def make() -> Iterator[torch.Tensor]:
        nonlocal reads
        reads += 1
        yield from images(7)

    subject = analyse(tiny(0), Data("noise", "images", make, 7), "x", explain_inputs=5, track=track)
    assert reads == 1
    assert walks == ["analysing x 7"]
    assert subject.measurement.samples == 7
    assert subject.explanation is not None
    assert subject.explanation.inputs == 5
    assert subject.measurement.about.data.reference == "noise"
    assert subject.explanation.about.model.weights == subject.measurement.about.model.weights


def test_images_are_measured_by_every_definition_of_the_page() -> None:
    subject = analyse(tiny(0), images(9))
    settings = subject.measurement.about.settings
    assert settings.tokens == ("all", "patches", "no-outliers")
    assert settings.metrics == tuple(name for name, row in METRICS.items() if not row.over_data)
    assert subject.explanation is not None
    assert subject.explanation.inputs == 8


@pytest.mark.parametrize("example", [0, 2])
def test_the_tokens_are_those_of_a_sample_of_the_first_batch(example: int) -> None:
    loaded = tiny(0)
    found = analyse(loaded, images(6), explain_inputs=0, example=example, metrics="hfc_lfc", tokens="all").tokens
    assert found is not None
    expected = view_tokens(loaded, next(iter(images(6))), example)
    np.testing.assert_allclose(found.distance, expected.distance, rtol=1e-5)


@pytest.mark.parametrize("example", [-1, 4])
def test_an_example_that_the_first_batch_does_not_have_is_refused(example: int) -> None:
    with pytest.raises(OptionError, match=f"example {example}: the first batch has samples 0 to 3"):
        analyse(tiny(0), images(6), explain_inputs=0, example=example, metrics="hfc_lfc", tokens="all")


def test_features_without_a_value_are_refused_unless_they_are_to_be_kept() -> None:
    loaded = tiny(0)
    for parameter in loaded.model.parameters():
        torch.nn.init.zeros_(parameter)
    with pytest.raises(FeatureError, match="zero"):
        analyse(loaded, images(2), metrics="hfc_lfc", explain_inputs=0)
    kept = analyse(loaded, images(2), metrics="hfc_lfc", tokens="patches", explain_inputs=0, degenerate="keep")
    assert {(cell.metric, cell.tokens) for cell in kept.measurement.cells} == {("hfc_lfc", "patches")}


def test_the_explanation_can_be_left_out() -> None:
    subject = analyse(tiny(0), images(2), explain_inputs=0)
    assert subject.explanation is None
    assert subject.tokens is not None
    assert subject.name == "timm:vit_tiny_patch16_224"


def test_a_family_that_cannot_be_explained_is_measured_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise WeightsError("no separable weights")

    monkeypatch.setattr("unsmooth.analysis.attention_listener.check_attention", refuse)
    subject = analyse(tiny(0), images(2))
    assert subject.explanation is None
    assert "not explained: no separable weights" in build_report([subject])


def test_text_is_measured_without_its_special_tokens_and_explained_on_its_first_inputs() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=40, n_embd=16, n_layer=1, n_head=2, n_positions=16)
    model = transformers.GPT2Model(config).eval()
    ids = torch.randint(40, (10, 9))
    ids[:, 0] = 0
    batches = [{"input_ids": part, "attention_mask": torch.ones_like(part)} for part in ids.split(5)]
    loaded = LoadedModel(model, "hf:tiny", "text", tokenizer=SimpleNamespace(all_special_ids=(0,), decode=str))
    subject = analyse(loaded, Data("ids", "words", lambda: iter(batches), 10), explain_inputs=7)
    found = subject.measurement
    assert found.about.settings.tokens == ("all", "content", "no-outliers")
    expected = measure(model, batches, "hfc_lfc", tokens="content", special_ids=(0,))
    cell = Cell("blocks.0.pre", "hfc_lfc", "content")
    assert found.cells[cell].mean == pytest.approx(expected.cells[cell].mean)
    assert subject.explanation is not None
    assert subject.explanation.inputs == 7
    for about in (found.about, subject.explanation.about):
        assert (about.model.reference, about.data.reference, about.data.kind) == (
            "hf:tiny",
            "ids",
            "words",
        )


def test_texts_of_one_token_are_left_out_and_told() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=40, n_embd=16, n_layer=1, n_head=2, n_positions=16)
    tokenizer = SimpleNamespace(all_special_ids=(0,), decode=str)
    loaded = LoadedModel(transformers.GPT2Model(config).eval(), "hf:tiny", "text", tokenizer=tokenizer)
    ids, mask = torch.randint(1, 40, (6, 5)), torch.ones(6, 5, dtype=torch.long)
    ids[:, 0] = 0
    mask[4, 2:] = 0  # one token that is no special one
    batches = [{"input_ids": i, "attention_mask": m} for i, m in zip(ids.split(2), mask.split(2), strict=True)]
    kept = [*batches[:2], {name: x[1:] for name, x in batches[2].items()}]
    subject, expected = (analyse(loaded, given, explain_inputs=6) for given in (batches, kept))
    assert subject.measurement.samples == 5
    assert subject.explanation is not None
    assert subject.explanation.inputs == 5
    for cell, moments in expected.measurement.cells.items():
        assert subject.measurement.cells[cell].mean == pytest.approx(moments.mean, nan_ok=True)
    note = "left out: 1 of 6 samples, without two tokens to compare that are neither padding nor special"
    assert note in subject.measurement.notes
    assert f"L{note[1:]}." in " ".join(finding.html() for finding in findings([subject]))
    short = {name: x[:1, :2] for name, x in batches[2].items()}
    with pytest.raises(FeatureError, match=r"no sample has two tokens .*: give longer texts, or count special tokens"):
        analyse(loaded, [short])
    assert analyse(loaded, [short], tokens="all").measurement.samples == 1
    with pytest.raises(FeatureError, match=r"no sample has two tokens to compare that are no padding: give longer"):
        analyse(loaded, [short["input_ids"][:, :1]], tokens="all")


def test_text_models_show_their_tokens_and_hostile_ones_stay_text(browser: Person, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")

    class Tokenizer:
        all_special_ids = (0,)

        def decode(self, ids: list[int]) -> str:
            return "<b onclick=x>" if ids[0] % 2 else "</script>"

    config = transformers.GPT2Config(vocab_size=40, n_embd=16, n_layer=2, n_head=2, n_positions=16)
    model = transformers.GPT2Model(config).eval()
    loaded = LoadedModel(model, "hf:tiny", "text", tokenizer=Tokenizer())

    def make() -> Iterator[dict[str, torch.Tensor]]:
        ids = torch.randint(1, 40, (2, 9), generator=torch.Generator().manual_seed(0))
        yield {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    subject = analyse(loaded, Data("ids", "text", make, 2), "gpt")
    path = tmp_path / "text.html"
    path.write_text(build_report([subject]), encoding="utf-8")
    browser.read(path)
    assert browser.problems() == []
    assert browser.evaluate("document.querySelectorAll('.token-text span').length") == 9
    assert browser.text(".token-text span") in ("<b onclick=x>", "</script>")
    assert browser.evaluate("document.querySelectorAll('#depth .panel').length") == 3


def test_values_without_a_number_leave_gaps_and_no_errors(
    browser: Person, subjects: list[Subject], tmp_path: Path
) -> None:
    """A zero mean makes HFC/LFC infinite; one sample has no deviation."""
    import copy

    subject = copy.deepcopy(subjects[0])
    for cell, moments in subject.measurement.cells.items():
        if cell.metric == "hfc_lfc":
            moments.count, moments.square = 1, 0.0
            if cell.point in ("blocks.0.pre", "blocks.1.mid"):
                moments.mean = math.inf
    path = tmp_path / "gaps.html"
    path.write_text(build_report([subject]), encoding="utf-8")
    assert "∞" in path.read_text(encoding="utf-8")
    browser.read(path)
    assert browser.problems() == []
    line = "#depth [data-when]:not([hidden]) svg [data-model='0'] > path[stroke-width='2']"
    curve = browser.evaluate(f"document.querySelector(`{line}`).getAttribute('d')")
    assert "NaN" not in curve
    assert curve.count("m") == 2
