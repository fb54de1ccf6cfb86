"""Sentences made from numbers: right in direction, careful in doubt, free of judgement."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import replace

import pytest
import scipy.stats
import torch
from results import about_explained, about_measured

import unsmooth
from unsmooth.analysis import Explanation, Measurement, Subject
from unsmooth.analysis.changes import READINGS
from unsmooth.analysis.comparison import welch_half_width
from unsmooth.analysis.measurement import Cell, Change
from unsmooth.metrics.moments import Moments
from unsmooth.page.findings import _margin, findings
from unsmooth.page.verdict import verdict, vote
from unsmooth.page.words import number_text

PAPER = ("hfc_lfc", "cosine_similarity", "effective_rank")
SMOOTHER = {"hfc_lfc": -1.0, "cosine_similarity": 1.0, "effective_rank": -1.0}


def moments(mean: float, spread: float, count: int = 16) -> Moments:
    found = Moments()
    found.update(mean + spread * torch.linspace(-1, 1, count, dtype=torch.float64))
    return found


def measured(change: dict[str, float], spread: float = 0.01, layers: int = 2, count: int = 16) -> Measurement:
    """Each metric starts at 5 and moves by `change` in total, half by attention and half by the MLP."""
    cells, changes = {}, {}
    for metric, total in change.items():
        step = total / (2 * layers)
        for layer in range(layers):
            for k, name in enumerate(("pre", "mid", "post")):
                cells[Cell(f"blocks.{layer}.{name}", metric, "all")] = moments(
                    5 + step * (2 * layer + k), spread, count
                )
        for kind in ("Attention", "MLP"):
            changes[Change("residual", kind, metric, "all")] = moments(step, spread, count)
    about = {
        "model": {"layers": layers, "placement": "pre", "class": "X"},
        "data": {"reference": "here"},
        "settings": {"metrics": list(change), "tokens": ["all"]},
        "definitions": {"metrics": dict.fromkeys(change, ""), "tokens": {"all": ""}, "changes": dict(READINGS)},
    }
    return Measurement(cells, changes, about_measured(**about))


@pytest.mark.parametrize(("towards", "word"), [(1.0, "smooths"), (-1.0, "sharpens")])
def test_the_direction_is_that_of_the_metrics(towards: float, word: str) -> None:
    found = measured({metric: towards * SMOOTHER[metric] for metric in PAPER})
    assert verdict(found, PAPER, "all") == word
    first = findings([Subject("x", found)])[0]
    assert first.section == "depth"
    assert f">{word}<" in first.html
    low, high = ("4", "6") if word == "smooths" else ("6", "4")
    assert first.html.endswith(f"(HFC/LFC 5 → {low}, cosine similarity 5 → {high}, effective rank 5 → {low}).")


def test_a_metric_that_takes_no_part_in_the_verdict_is_named() -> None:
    said = findings([Subject("x", measured({"hfc_lfc": -1.0, "cosine_similarity": 0.001, "effective_rank": -1.0}))])[0]
    assert ">smooths<" in said.html
    assert said.html.endswith("; the change of cosine similarity is not clear.")
    assert "not clear" not in findings([Subject("x", measured(SMOOTHER))])[0].html


def test_one_clear_metric_of_three_is_named_and_makes_no_verdict() -> None:
    found = measured({"hfc_lfc": 0.001, "cosine_similarity": 0.001, "effective_rank": -1.0})
    assert verdict(found, PAPER, "all") == "steady"
    said = findings([Subject("x", found)])[0].html
    assert "does not clearly change" in said
    assert said.endswith("; only the change of effective rank is clear.")
    assert verdict(found, PAPER[1:], "all") == "smooths"  # one of two is enough


def test_metrics_that_disagree_are_said_to() -> None:
    found = measured({"hfc_lfc": -1.0, "cosine_similarity": -1.0, "effective_rank": -1.0})
    assert verdict(found, PAPER, "all") == "mixed"
    assert "different directions" in findings([Subject("x", found)])[0].html
    found = measured({"hfc_lfc": -1.0, "cosine_similarity": -1.0, "effective_rank": 0.001})
    assert "directions (" in (said := findings([Subject("x", found)])[0].html)
    assert said.endswith("; the change of effective rank is not clear.")


def test_a_change_smaller_than_its_interval_is_no_verdict() -> None:
    found = measured({metric: 0.01 * SMOOTHER[metric] for metric in PAPER}, spread=1.0)
    assert verdict(found, PAPER, "all") == "steady"
    assert [vote(found, metric, "all") for metric in PAPER] == [0, 0, 0]
    said = " ".join(finding.html for finding in findings([Subject("x", found)]))
    assert "attention does not clearly change HFC/LFC (" in said


@pytest.mark.parametrize("count", [1, 16])
def test_what_changes_nothing_at_all_neither_raises_nor_lowers(count: int) -> None:
    found = measured(SMOOTHER, count=count)
    found.changes[Change("residual", "Attention", "hfc_lfc", "all")] = moments(0.0, 0.0, count)
    said = " ".join(finding.html for finding in findings([Subject("x", found)]))
    assert "attention does not clearly change HFC/LFC (0); the MLP lowers it (" in said


def test_the_layer_that_moves_most_and_the_mover_are_named() -> None:
    found = measured({"hfc_lfc": -2.0, "cosine_similarity": 1.0, "effective_rank": -1.0})
    found.changes[Change("residual", "Attention", "hfc_lfc", "all")] = moments(-0.9, 0.01)
    said = [finding.html for finding in findings([Subject("x", found)])]
    assert "smooth</span> most in layer 1 (HFC/LFC ×0.75)" in said[1]
    assert "layers that smooth them: 2 of 2" in said[1]
    assert said[2] == "Per layer and on average, attention lowers HFC/LFC (−0.9); the MLP lowers it (−0.5)."


def with_outliers(found: Measurement) -> Measurement:
    settings = replace(found.about.settings, tokens=("all", "no-outliers"))
    definitions = replace(found.about.definitions, tokens={"all": "", "no-outliers": ""})
    return replace(found, about=replace(found.about, settings=settings, definitions=definitions))


def test_outlier_tokens_that_make_the_curve_are_named() -> None:
    found = measured(SMOOTHER)
    found = with_outliers(found)
    for cell, value in list(found.cells.items()):
        factor = 0.25 if cell.point == "blocks.1.mid" else 1.0
        found.cells[cell._replace(tokens="no-outliers")] = moments(value.mean * factor, 0.01)
    said = [finding.html for finding in findings([Subject("x", found)])]
    assert "HFC/LFC is 4 times what it is without at blocks.1.mid" in said[1]
    calm = measured(SMOOTHER)
    assert not any("extreme norm" in finding.html for finding in findings([Subject("x", calm)]))


def test_outlier_tokens_that_hide_smoothing_are_found_among_the_leading_metric_of_the_stream() -> None:
    found = measured({"cosine_similarity": 1.0, "hfc_lfc": -1.0})
    found = with_outliers(found)
    found.cells[Cell("blocks.0.attn", "hfc_lfc", "all")] = moments(1.0, 0.01)
    factors = {"blocks.0.attn": 99.0, "blocks.0.mid": 2.0, "blocks.1.pre": 0.0, "blocks.1.mid": 0.8}
    for cell in found.cells:
        found.cells[cell].mean /= 10  # a ratio of small values counts as well
    for cell, value in list(found.cells.items()):
        factor = factors.get(cell.point, 1.0) if cell.metric == "hfc_lfc" else 50.0
        found.cells[cell._replace(tokens="no-outliers")] = moments(value.mean * factor, 0.0)
    (said,) = (f.html for f in findings([Subject("x", found)]) if "extreme norm" in f.html)
    assert "HFC/LFC is 0.5 times what it is without at blocks.0.mid (switch" in said


def test_few_samples_and_an_interruption_are_admitted() -> None:
    found = measured(SMOOTHER, count=3)
    last = findings([Subject("x", found)])[-1]
    assert last.section == "provenance"
    assert "3 samples" in last.html
    assert "hardly how others would" in last.html
    assert "interrupted" not in last.html
    half = Subject("y", dataclasses.replace(found, partial=True))
    assert "interrupted" in findings([Subject("x", found), half])[-1].html


def test_one_sample_has_no_interval_and_still_gives_a_page() -> None:
    found = measured({metric: SMOOTHER[metric] for metric in PAPER}, count=1)
    assert "1 sample;" in findings([Subject("x", found)])[-1].html
    other = measured({metric: -SMOOTHER[metric] for metric in PAPER}, count=1)
    assert findings([Subject("x", found), Subject("y", other)])[0].html.endswith("in <b>x</b> (3.99).")  # no margin


def test_thirty_samples_are_not_few_and_those_explained_are_counted() -> None:
    rows = [{"layer": 0, "input": i, "step": 1.0, "exponent": 1.0, "measured_ratio": 1.0} for i in range(2)]
    spectra = [{"layer": 0, "folded": True, "layer_values": torch.ones(2) + 0j, "head_values": torch.ones(1, 2) + 0j}]
    explained = Subject("x", measured(SMOOTHER, count=30), Explanation(rows, [], [], spectra, about_explained()))
    assert findings([explained])[-1].html == "The measurements rest on 30 samples and the explanation on 2 of them."
    fewer = [Subject("y", measured(SMOOTHER, count=count)) for count in (29, 40)]
    assert findings([explained, *fewer])[-1].html.startswith(
        "The measurements rest on 29 or 30 or 40 samples and the explanation on 2 of them; so few say"
    )


def test_several_models_are_told_apart_by_escaped_names() -> None:
    pair = [Subject("<i>a</i>", measured(SMOOTHER)), Subject("b", measured({m: -v for m, v in SMOOTHER.items()}))]
    first = findings(pair)[1].html
    assert "<b>&lt;i&gt;a&lt;/i&gt;</b>" in first
    assert first.index("smooths") < first.index("<b>b</b>") < first.index("sharpens")


def three(spread: float = 0.01) -> list[Subject]:
    """One that hardly moves, one that sharpens, one that smooths."""
    changes = {"plain": 0.2, "sharp": -1.0, "smooth": 1.0}
    return [Subject(n, measured({m: c * v for m, v in SMOOTHER.items()}, spread)) for n, c in changes.items()]


def test_models_are_put_in_order_and_the_gap_is_held_against_its_margin() -> None:
    said = findings(three())[0]
    assert said.section == "depth"
    assert said.html.startswith(
        "After the last layer, tokens are farthest apart in <b>sharp</b> (HFC/LFC 6), then <b>plain</b> (4.8), "
        "and closest together in <b>smooth</b> (4); the gap between these two, 2, is clear of its 95"
    )
    assert "is no larger than its 95" in findings(three(spread=9.0))[0].html


def test_the_margin_of_the_same_inputs_is_that_of_pairs() -> None:
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    sizes = {"img_size": 32, "embed_dim": 24, "num_heads": 2}
    one, two = (timm.create_model("vit_tiny_patch16_224", depth=depth, **sizes) for depth in (2, 3))
    batch = torch.randn(6, 3, 32, 32)
    subjects = [Subject(name, unsmooth.measure(model, [batch])) for name, model in (("one", one), ("two", two))]
    cells = [Cell(f"blocks.{last}.post", "hfc_lfc", "all") for last in (1, 2)]
    values = [s.measurement.per_sample[cell] for s, cell in zip(subjects, cells, strict=True)]  # type: ignore[index]
    interval = scipy.stats.ttest_rel(*values).confidence_interval(0.95)
    expected = float(interval.high - interval.low) / 2
    assert _margin(subjects[0], subjects[1], "hfc_lfc", "all") == pytest.approx(expected, rel=1e-6)
    turned = Subject("two", unsmooth.measure(two, [batch[torch.tensor([2, 0, 1, 5, 4, 3])]]))
    for first, second in ((subjects[0], turned), (turned, subjects[0])):
        assert _margin(first, second, "hfc_lfc", "all") == pytest.approx(expected, rel=1e-4)
    others = Subject("two", unsmooth.measure(two, [torch.randn(6, 3, 32, 32)]))
    welch = welch_half_width(subjects[0].measurement.cells[cells[0]], others.measurement.cells[cells[1]])
    assert _margin(subjects[0], others, "hfc_lfc", "all") == welch


def test_models_that_do_the_same_share_a_clause() -> None:
    said = [finding.html for finding in findings(three())]
    assert '<b>plain</b> and <b>smooth</b> <span class="smooth-word">smooth</span> their features' in said[1]
    assert (
        "attention lowers HFC/LFC in <b>plain</b> (−0.05) and <b>smooth</b> (−0.25) and raises it in <b>sharp</b> "
        "(+0.25); the MLP lowers it in"
    ) in said[3]


def test_the_steps_of_two_models_are_told_apart() -> None:
    *_, where, driver, _ = findings(three()[1:])
    assert where.html == (
        'Features <span class="sharp-word">sharpen</span> most in layer 0 in <b>sharp</b> (HFC/LFC ×1.1); they '
        '<span class="smooth-word">smooth</span> most in layer 1 in <b>smooth</b> (×0.889); layers that smooth them: '
        "0 of 2 in <b>sharp</b> and 2 of 2 in <b>smooth</b>."
    )
    assert "attention raises HFC/LFC in <b>sharp</b> (+0.25) and lowers it in <b>smooth</b> (−0.25);" in driver.html
    single = Subject("single", measured(SMOOTHER, layers=1))  # one layer is the most of nothing
    assert where in findings([single, *three()[1:]])


@pytest.mark.parametrize(("change", "other", "smoothing"), [(-1.0, "sharp-word", 1), (1.0, "smooth-word", 0)])
def test_a_layer_that_changes_nothing_neither_smooths_nor_sharpens(change: float, other: str, smoothing: int) -> None:
    found = measured({"hfc_lfc": change})
    found.cells[Cell("blocks.0.post", "hfc_lfc", "all")] = found.cells[Cell("blocks.0.pre", "hfc_lfc", "all")]
    said = findings([Subject("x", found)])[1].html
    assert other not in said
    assert said.endswith(f"layers that smooth them: {smoothing} of 2.")


def test_layers_of_small_values_are_counted_too() -> None:
    found = measured({"hfc_lfc": -1.0})
    for value in found.cells.values():
        value.mean /= 10
    assert findings([Subject("x", found)])[1].html.endswith("layers that smooth them: 2 of 2.")


def test_layers_without_a_factor_are_not_counted() -> None:
    found = measured({"hfc_lfc": -1.0}, layers=5)
    for point in ("blocks.0.pre", "blocks.1.post"):
        found.cells[Cell(point, "hfc_lfc", "all")] = moments(0.0, 0.0)
    del found.cells[Cell("blocks.2.post", "hfc_lfc", "all")]
    assert findings([Subject("x", found)])[1].html.endswith("layers that smooth them: 2 of 2.")


def test_order_and_gap_follow_a_metric_that_rises_when_features_smooth() -> None:
    pair = [Subject(name, measured({"cosine_similarity": change})) for name, change in (("a", 1.0), ("b", -1.0))]
    assert findings(pair)[0].html.startswith(
        "After the last layer, tokens are farthest apart in <b>b</b> (cosine similarity 4), and closest together in "
        "<b>a</b> (6); the gap between these two, 2, is clear of"
    )


def test_a_metric_that_rises_when_features_smooth_is_read_that_way() -> None:
    said = findings([Subject("x", measured({"cosine_similarity": 1.0}))])[1].html
    assert "smooth</span> most in layer 0 (cosine similarity ×1.1)" in said
    assert "sharp-word" not in said
    assert "layers that smooth them: 2 of 2" in said


def test_smoothing_is_never_judged(subjects: list[Subject]) -> None:
    said = " ".join(finding.html for finding in findings(subjects))
    assert not re.search(
        r"\b(bad|good|worse|poor|suffer|problem|fail|harm|unfortunately|healthy)", said.split("<b>")[0]
    )
    assert not re.search(r"\b(bad|poor|suffers?|problem|harmful|unfortunately|healthy|degrad)", said)


def test_numbers_read_as_text() -> None:
    assert number_text(0.00001234) == "1.23e−05"
    assert number_text(-1500.0) == "−1500"
    assert number_text(float("inf")) == "∞"
    assert number_text(float("-inf")) == "−∞"
    assert number_text(float("nan")) == "undefined"
    assert number_text(0.0) == "0"
