"""*What one could do*: sentences follow from the sweep's numbers, and a model without one gets the command to run."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from page.courses import Known
from results import _about
from small_models import images, vit

import unsmooth
from unsmooth.analysis import About, Subject
from unsmooth.analysis.subject import NOT_EXPLAINED
from unsmooth.analysis.sweep import Sweep, SweepPoint, SweepSettings, SweptEdit, TaskFacts
from unsmooth.errors import OptionError
from unsmooth.page.charts.could import command, could_section, priced
from unsmooth.page.words.findings import findings
from unsmooth.reporting import with_sweeps


def sweep(points: list[tuple[float, float, float, float | None, float | None]], better: str = "higher") -> Sweep:
    """Made up: strength, HFC/LFC, difference of a score that starts at 0.5, and its interval."""
    made = [SweepPoint(0.0, 0.0, {"all": {"hfc_lfc": 2.0}}, 0.5)]
    made += [SweepPoint(s, s / 2, {"all": {"hfc_lfc": r}}, 0.5 + d, d, low, high) for s, r, d, low, high in points]
    settings = {"point": "blocks.1.post", "metrics": ["hfc_lfc"], "tokens": ["all"]}
    about = About.from_json(_about({"settings": settings, "model": {"reference": "zoo:x"}}), SweepSettings)
    task = TaskFacts("accuracy", "share", better, "share of images", 40)
    return Sweep((SweptEdit("high=0", tuple(made)),), task, about)


@pytest.mark.parametrize(
    ("points", "better", "words", "not_said"),
    [
        ([(0.5, 2.5, -0.01, -0.03, 0.01), (1.0, 3.0, -0.2, -0.25, -0.15)], "higher",
         ["raises HFC/LFC", "from 2 to 3", "from 0.5 to 0.3", ": worse)", "Up to strength 0.5, where HFC/LFC is 2.5"],
         []),
        ([(1.0, 1.0, -0.2, -0.25, -0.15)], "lower", ["lowers HFC/LFC", ": better)"], ["Up to"]),
        ([(1.0, 3.0, 0.01, -0.02, 0.04)], "higher", ["no difference that can be claimed"], ["worse", "better"]),
        # a strong edit that cannot be told from none says nothing of the weaker one that can
        ([(0.5, 2.5, -0.1, -0.2, -0.01), (1.0, 3.0, -0.1, -0.3, 0.1)], "higher", ["can be claimed"], ["Up to"]),
        ([(0.5, 2.5, -0.1, -0.2, -0.01), (1.0, 1.0, -0.2, -0.3, -0.1)], "higher",
         ["lowers HFC/LFC of mine from 2 to 1, after raising it to 2.5 at strength 0.5"], ["Up to"]),
        ([(0.5, 1.5, -0.1, -0.2, -0.01), (1.0, 3.0, -0.2, -0.3, -0.1)], "higher", ["after lowering it to 1.5"], []),
        ([(1.0, 3.0, 0.01, None, None)], "higher", ["without an interval"], ["claimed"]),
        ([(1.0, 2.0, 0.01, -0.02, 0.04)], "higher", ["does not move HFC/LFC"], ["worse"]),
    ],
)  # fmt: skip
def test_a_sentence_says_what_the_numbers_say(points: Any, better: str, words: list[str], not_said: list[str]) -> None:
    made = sweep(points, better)
    said = priced("mine", made, made.edits[0])
    assert all(word in said for word in words), said
    assert not any(word in said for word in not_said), said


@pytest.fixture(scope="module")
def subject() -> Subject:
    return Subject("mine", unsmooth.measure(vit(), images(2), points="residual"))


def test_without_a_sweep_the_page_says_what_to_run(subject: Subject) -> None:
    page = could_section([subject])
    assert "Not measured for this model" in page
    assert "unsmooth.sweep(model, batches, loss)" in page  # no command line reaches a model in memory
    assert "--sweep" not in page
    assert "unsmooth sweep MODEL --data DATA --task" in command(subject)
    about = subject.measurement.about
    for reference, data in ((None, "DATA"), ("books", "DATA"), ("bundled passages", "bundled")):
        given = replace(about.data, kind="images", reference=reference)
        named = replace(about, model=replace(about.model, reference="hf:my model"), data=given)
        shown = command(replace(subject, measurement=replace(subject.measurement, about=named)))
        assert f"unsmooth sweep 'hf:my model' --data {data} --task knn:" in shown


def test_where_h_could_not_be_read_nothing_that_changes_it_is_suggested() -> None:
    model = vit()
    with torch.no_grad():
        for block in model.blocks:
            block.attn.proj.bias.add_(1.0)  # attention gives every token the same
    known = Subject("mine", unsmooth.measure(model, images(4)))
    notes = (*known.measurement.notes, f"{NOT_EXPLAINED}no weights")
    subject = replace(known, measurement=replace(known.measurement, notes=notes))
    assert "edits change H, which could not be read" in could_section([subject])
    for shown, suggested in ((known, True), (subject, False)):
        said = " ".join(found.html() for found in findings([shown]))
        assert ("unsmooth.reparametrize" in said) == suggested
        assert ("could not be read here" in said) != suggested


def test_the_command_to_run_names_what_loaded_the_model_and_how_the_page_learns_of_it(subject: Subject) -> None:
    about = subject.measurement.about
    begins = "unsmooth report timm:x --data d"
    options = f"{begins} --weights w --model-option a=1"
    for asked, words in ((begins, []), (options, ["--weights", "--model-option"])):
        given = replace(subject, measurement=replace(subject.measurement, about=replace(about, command=asked)))
        page = could_section([given])
        assert "--sweep sweep.json" in page
        assert ("options that loaded the model" in page) == bool(words)
        assert all(word in page for word in words)
        assert "dashed line" not in page  # there is no figure


def test_a_sweep_of_other_weights_says_so(subject: Subject) -> None:
    made = sweep([(1.0, 3.0, -0.2, -0.25, -0.15)])
    about, theirs = subject.measurement.about, made.about
    for ours, other in (("aa", False), ("bb", True), (None, False)):
        mine = replace(about, model=replace(about.model, weights=ours))
        swept = replace(made, about=replace(theirs, model=replace(theirs.model, weights="aa")))
        page = could_section([replace(subject, sweep=swept, measurement=replace(subject.measurement, about=mine))])
        assert ("its weights are not those of this page" in page) == other
        assert "dashed line" in page


def test_a_sweep_stands_on_the_page_with_figure_and_table(subject: Subject, tmp_path: Path) -> None:
    made = sweep([(1.0, 3.0, -0.2, -0.25, -0.15)])
    page = could_section([replace(subject, sweep=made)])
    assert 'data-chart="prices"' in page
    assert "-0.2" in page.replace("−", "-")
    assert "without an edit 0.5" in page
    assert "H moved" not in page  # dropping a sink moves an MLP
    assert "of drop_sink, of the MLP’s weights" in page
    with pytest.raises(OptionError, match="the sweep is of zoo:x, and the page of VisionTransformer"):
        with_sweeps([subject], [made])
    own = unsmooth.sweep(vit(), images(2), lambda m: 1.0, strengths=[1])  # in memory: no reference, one model
    out = unsmooth.report(vit(), images(2), tmp_path / "x.html", sweeps=[own], metrics="paper", explain_inputs=0)
    assert "the task gives one number" in out.read_text()


def test_what_stands_under_the_figure_fits_a_phone() -> None:
    from unsmooth.figures.by_strength import prices
    from unsmooth.figures.text import short

    drawing = prices(sweep([(1.0, 3.0, -0.2, -0.25, -0.15)]), wide=360)
    (said,) = re.findall("HFC/LFC after the last block[^<]*", drawing.html())
    assert short(said, 360, 11) == said


def test_shares_of_the_table_are_written_as_elsewhere_on_the_page() -> None:
    swept = sweep([(0.5, 2.1, 0.0, -0.1, 0.1)])
    page = could_section([replace(Known("x", {"all": {"hfc_lfc": [2.0, 1.0]}}).subject(), sweep=swept)])
    assert "25\N{NO-BREAK SPACE}%" in page
    assert "25%" not in page
