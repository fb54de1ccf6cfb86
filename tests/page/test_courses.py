"""Measurements whose course is known by construction: every sentence and verdict says what the numbers say."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from page.course_cases import CASES, FALL, PEAK, RISE, line, only, said, sharp
from page.courses import SMOOTHER, TITLES, Claim, Known, check_course, check_makers, moments, numbers, plain

from unsmooth.analysis import Subject
from unsmooth.analysis.measuring.cells import Cell
from unsmooth.analysis.measuring.per_sample import PerSample
from unsmooth.page import build_report
from unsmooth.page.course import course, leading_metrics, ways
from unsmooth.page.data import shared_policies
from unsmooth.page.glance import in_short, passed
from unsmooth.page.words.findings import findings
from unsmooth.page.words.paragraph import Finding

VERBS = {1: "smooths", -1: "sharpens"}
FIGURES = dict.fromkeys(("depth", "steps", "provenance"), "Figure")


@pytest.mark.parametrize("name", CASES)
def test_each_sentence_says_what_the_numbers_say(name: str) -> None:
    known, expected, word = CASES[name]
    subject = known.subject()
    metrics, policy = leading_metrics([subject]), shared_policies([subject])[0]
    text = said([subject])["model"][0]
    course, _, rest = text.removeprefix("m ").partition(". ")
    claims = check_course(known, course, metrics[0], policy)
    assert [(claim.way, claim.last) for claim in claims] == expected
    assert word in text
    assert len(numbers(text.replace("m ", "", 1))) <= 3
    _check_others(known, rest, metrics, policy, claims)
    if known.placement != "parallel-shared" and any(claim.way for claim in claims):
        makers = next(part for part in rest.split(". ") if re.search("comes? from|clearly makes", part))
        check_makers(known, makers, claims, metrics[0], policy)
    else:
        assert not re.search("comes? from", text)


def _check_others(known: Known, rest: str, metrics: list[str], policy: str, claims: list[Claim]) -> None:
    """Who agrees, and what the others say: the sign of each clear stretch between the turns of their own curve."""
    shape = [claim.way for claim in claims if claim.way]
    for metric in metrics[1:]:
        title = TITLES[metric]
        own = next((p for p in re.split(r"; |\. ", rest) if title in p.lower()), "")
        told = re.search(r"it (.*)", own)
        if "agree" in own:
            curve = known.depth(metric, policy).mean(0) * SMOOTHER[metric]
            turned = [int(np.sign(curve[c.last + 1] - curve[c.first])) for c in claims if c.way]
            assert turned == shape
        else:
            assert told is not None
            verbs = {"smooths": 1, "sharpens": -1, "no clear change": 0, "does not clearly change": 0}
            ways = [verbs[word] for word in re.findall("|".join(verbs), told[1])]
            assert ways != [claim.way for claim in claims] or "slightly" in told[1]


@pytest.mark.parametrize("name", CASES)
def test_the_verdict_in_short_is_the_course(name: str) -> None:
    known, expected, _ = CASES[name]
    subject = known.subject()
    metrics, policy = leading_metrics([subject]), shared_policies([subject])[0]
    short = in_short(subject.measurement, metrics, policy, VERBS)
    verbs = [{"smooths": 1, "sharpens": -1, "no clear change": 0}[w]
             for w in re.findall("smooths|sharpens|no clear change", short)]  # fmt: skip
    assert verbs == [way for way, _ in expected]
    mean = known.depth(metrics[0], policy).mean(0)
    assert passed(subject.measurement, metrics[0], policy) == pytest.approx(
        [mean[0], *(mean[last + 1] for _, last in expected)], rel=1e-9, abs=1e-300
    )
    for (_, last), clause in zip(expected[:-1], short.split(", then "), strict=False):
        assert clause.endswith(f"layer {last}")


def small(metric: str, start: float, end: float, layers: int = 3) -> str:
    """The paragraph on a model whose metric moves from start to end, the same in all of many samples."""
    return " ".join(said([Known("m", only(line(start, end, layers), metric), offset=0.0).subject()])["model"])


def test_what_is_clear_but_small_is_called_slight() -> None:
    for metric, start, end in (("hfc_lfc", 5.28, 5.26), ("hfc_lfc", 1.0, 1.09), ("effective_rank", 54.5, 53.9),
                               ("cosine_similarity", 0.39, 0.41)):  # fmt: skip
        assert "slightly" in small(metric, start, end), (metric, start, end)
    for metric, start, end in (("hfc_lfc", 1.0, 1.11), ("hfc_lfc", 0.02, 0.01), ("effective_rank", 54.5, 40.0),
                               ("cosine_similarity", 0.4, 0.46), ("cosine_similarity", 0.99, 0.999)):  # fmt: skip
        assert "slightly" not in small(metric, start, end), (metric, start, end)


def test_nobody_is_advised_to_train_anew_for_a_slight_change() -> None:
    advice = said([Known("m", sharp([5.28, 5.27, 5.26]), offset=0.0).subject()])["advice"][0]
    assert "small" in advice
    assert "reparametrize" not in advice


def test_samples_of_very_different_levels_are_tested_by_their_factors() -> None:
    """Eight pictures of which each smooths in each layer: their differences scatter as their levels do."""
    known = Known("m", only([1.77, 1.5, 1.35]), samples=8)
    levels = np.array([2.161, 0.984, 0.762, 0.629, 0.647, 2.127, 2.247, 4.605])
    ends = np.array([1.372, 0.934, 0.654, 0.612, 0.487, 1.842, 1.684, 3.224])
    known._fill("all", "hfc_lfc", np.stack([levels, (levels * ends) ** 0.5, ends], axis=1))
    assert scipy.stats.ttest_rel(levels, ends).pvalue > 0.01 > scipy.stats.ttest_rel(*np.log([levels, ends])).pvalue
    assert ways(course(known.subject().measurement, "hfc_lfc", "all")) == (1,)


def test_a_mean_and_factors_that_disagree_are_not_clear() -> None:
    """One sample of a high level falls far, all others rise by as much in the logarithm."""
    known = Known("m", only([2.0, 1.0]), samples=6)
    known._fill("all", "hfc_lfc", np.array([[90.0, 30.0], *([1.0 + k / 100, 2.0] for k in range(5))]))
    assert ways(course(known.subject().measurement, "hfc_lfc", "all")) == ()


def test_there_are_at_least_thirty_and_every_page_can_be_built() -> None:
    assert len(CASES) >= 30
    for known, _, _ in (CASES[name] for name in ("huge", "zeros", "one layer", "post-norm", "a decoder with a sink")):
        assert "findings" in build_report([known.subject()])


def test_four_samples_and_thirty_layers_are_enough_for_a_curve_that_falls_to_a_third() -> None:
    """Nobody chose its ends by looking at it, so they do not pay for all pairs of depths that could be chosen."""
    known = Known("m", only([2.6, 1.2, *line(1.1, 0.8, 28)]), samples=4, noise=0.1, offset=0.1)
    assert ways(course(known.subject().measurement, "hfc_lfc", "all")) == (1,)


def test_one_sample_and_few_samples_and_an_interruption_are_said() -> None:
    for samples, words in ((1, "one sample: nothing could be tested"), (16, "With 16 samples, treat this as a")):
        assert words in said([Known("m", sharp(FALL), samples=samples).subject()])["certainty"][0]
    assert "certainty" not in said([Known("m", sharp(FALL), samples=30).subject()])
    assert "interrupted" in said([Known("m", sharp(FALL), samples=30, partial=True).subject()])["certainty"][0]
    lost = said([Known("m", sharp(FALL), samples=30, kept=False).subject()])["certainty"][0]
    assert "not kept for each sample, only large changes can be told from chance" in lost


@pytest.mark.parametrize(("keys", "words"), [
    ([7] * 6, "All 6 samples are the same input, so nothing here was tested against others."),
    ([7, 8, 7, 9, 8, 7], "Only 3 of 6 samples are different inputs, so less is clear than their number says."),
    (range(6), ""),
])  # fmt: skip
def test_samples_that_are_one_input_are_no_new_evidence(keys: Sequence[int], words: str) -> None:
    subject = Known("m", sharp(FALL), samples=6).subject()
    assert subject.measurement.per_sample is not None
    subject.measurement.per_sample = replace(subject.measurement.per_sample, keys=np.array(keys, dtype=np.int64))
    text = said([subject])["certainty"][0]
    assert words in text
    assert ("input" in text.replace("these inputs", "")) == bool(words)


@pytest.mark.parametrize(("name", "words"), [
    ("falling", 'unsmooth.reparametrize(model, "sharpening")'),
    ("rising", 'unsmooth.reparametrize(model, "smoothing")'),
    ("falling", 'fine-tune with unsmooth.adapt(model, "sharpening"), which adds negative ones'),
    ("rising", 'fine-tune with unsmooth.adapt(model, "smoothing")'),
    ("flat", "nothing has to be done, for what changes, if anything does, is small"),
    ("two samples", "measure more samples, which would tell these changes from chance"),
    ("a decoder with a sink", "leave tokens of extreme norm out"),
])  # fmt: skip
def test_the_last_line_says_what_one_could_do(name: str, words: str) -> None:
    *_, last = findings([CASES[name][0].subject()])
    assert last.about == "advice"
    assert words in plain(last.html())


def test_metrics_that_disagree_are_not_advised_away() -> None:
    """HFC/LFC rises while the effective rank collapses, as in a small BERT: nothing to do would be wrong."""
    apart = {"all": {"hfc_lfc": RISE, "cosine_similarity": FALL, "effective_rank": FALL}}
    text = said([Known("m", apart).subject()])
    assert "by effective rank it smooths" in text["model"][0]
    assert "the metrics disagree" in text["advice"][0]
    assert "the metrics disagree" not in said([Known("m", sharp(RISE)).subject()])["advice"][0]


def test_of_tokens_that_are_alike_no_metric_tells_a_course() -> None:
    curves = {"hfc_lfc": [0.0, 1e-7, 2e-7], "cosine_similarity": [1.0] * 3, "effective_rank": [1.0, 1.00002, 1.00004]}
    subject = Known("m", {"all": curves}, noise=0.0, offset=0.0).subject()
    (text,) = said([subject])["model"]
    assert in_short(subject.measurement, list(curves), "all", {1: "smooths", -1: "sharpens"}) == "no clear change"
    curves["effective_rank"] = [5.0, 3.0, 1.0]
    (advice,) = said([Known("m", {"all": curves}, noise=0.0, offset=0.0).subject()])["advice"]
    assert "of tokens that are alike nothing more can be said" in advice
    assert "all tokens of an input are alike" in text
    assert not any(word in text for word in ("effective rank", "osine similarity", "agree"))


def test_a_fall_that_is_not_clear_does_not_disagree_with_a_clear_one() -> None:
    curves = {"all": {"hfc_lfc": FALL, "cosine_similarity": [0.9 - 0.1 * v for v in FALL]}}
    known = Known("m", curves, samples=3, noise=0.01)
    known._fill("all", "hfc_lfc", np.array([[4.0, 1.0], [4.0, 3.9], [4.0, 2.0]])[:, [0, 0, 0, 0, 0, 0, 1]])
    text = said([known.subject()])
    assert "does not clearly change" in text["model"][0]
    assert "by cosine similarity it smooths" in text["model"][0].lower()
    assert "measure more samples, which would tell these changes from chance" in text["advice"][0]


def within_budget(known: Known, count: int) -> Subject:
    """The same where effective rank is of the first samples alone, as within a rank budget."""
    subject = known.subject()
    for cell, values in known.values.items():
        if cell.metric == "effective_rank":
            values[count:] = np.nan
            subject.measurement.cells[cell] = moments(values[:count])
    assert subject.measurement.per_sample is not None
    table = np.stack(list(known.values.values()))
    subject.measurement.per_sample = PerSample(tuple(known.values), np.arange(known.samples), table)
    return subject


@pytest.mark.parametrize("curve", [FALL, RISE])
def test_a_metric_of_one_sample_among_more_neither_agrees_nor_disagrees(curve: list[float]) -> None:
    curves = {"all": {"hfc_lfc": RISE, "cosine_similarity": FALL, "effective_rank": curve}}
    text = said([within_budget(Known("m", curves, samples=6), 1)])
    assert "Cosine similarity agrees; by effective rank (one sample, not tested) it s" in text["model"][0]
    assert "the metrics disagree" not in text["advice"][0]


def test_a_metric_of_fewer_samples_says_of_how_many() -> None:
    text = said([within_budget(Known("m", sharp(RISE), samples=8), 4)])["model"][0]
    assert "Cosine similarity and effective rank (4 samples) agree" in text
    ranks = {"all": {"effective_rank": RISE, "dataset_rank": RISE}}  # the latter does not count against the budget
    (first,) = said([within_budget(Known("m", ranks, samples=8), 1)])["model"]
    assert re.match(
        r"m sharpens its features in every layer \(effective rank \S+ → \S+; one sample, not tested\)", first
    )
    ranks = {"all": {"effective_rank": PEAK, "dataset_rank": RISE}}
    (turning,) = said([within_budget(Known("m", ranks, samples=8), 1)])["model"]
    assert ", then smooths" in turning
    assert "(effective rank; one sample, not tested)" in turning


def test_what_no_control_of_h_reaches_is_said() -> None:
    (advice,) = said([Known("m", sharp(FALL), parts=[0.01, 0.99]).subject()])["advice"]
    assert "the MLP makes it, which no control of H reaches" in advice
    assert "reparametrize" not in advice


def test_links_set_the_figure_to_what_the_sentence_speaks_of() -> None:
    known = CASES["a decoder with a sink"][0]
    (model,) = (f for f in findings([known.subject()]) if f.about == "model")
    assert isinstance(model, Finding)
    views = re.findall(r'href="#(\w+)" data-view="([^"]*)"', model.html(FIGURES))
    assert [section for section, _ in views] == ["depth", "steps"]
    for _, view in views:
        assert "&quot;tokens&quot;: &quot;no-outliers&quot;" in view
        assert "&quot;metric&quot;: &quot;hfc_lfc&quot;" in view
    assert "href" not in re.sub(r'href="#term-', "", model.html())  # no link to a figure that is not there


def test_a_step_between_points_that_were_not_measured_has_no_maker() -> None:
    subject = Known("m", sharp(FALL)).subject()
    for cell in [c for c in subject.measurement.cells if c.point.endswith(".mid")]:
        del subject.measurement.cells[cell]
    (text,) = said([subject])["model"]
    assert "in every layer" in text
    assert "comes from" not in text


def test_without_the_outputs_of_layers_the_points_that_were_measured_stand_for_them() -> None:
    subject = Known("m", only(FALL)).subject()
    for cell in [c for c in subject.measurement.cells if c.point.endswith(".post")]:
        del subject.measurement.cells[cell]
    (text,) = said([subject])["model"]
    assert text.startswith("m smooths its features")
    start, end = (subject.measurement.cells[Cell(f"blocks.{p}", "hfc_lfc", "all")].mean for p in ("0.pre", "5.mid"))
    assert numbers(text)[:2] == [float(f"{start:.3g}"), float(f"{end:.3g}")]


def test_smoothing_is_never_judged() -> None:
    for known, _, _ in CASES.values():
        text = " ".join(plain(finding.html()) for finding in findings([known.subject()]))
        assert not re.search(r"\b(bad|poor|suffers?|problem|harmful|unfortunately|healthy|degrad|worse)", text)


def test_where_layers_were_left_out_no_single_one_is_named() -> None:
    subject = Known("m", only([4.0, 3.9, 3.8, 1.5, 1.4, 1.3, 1.2])).subject()
    assert "most in layer 2" in said([subject])["model"][0]
    for cell in [c for c in subject.measurement.cells if c.point.split(".")[1] in "12"]:
        del subject.measurement.cells[cell]
    (text,) = said([subject])["model"]
    assert "most in" not in text
    assert "in every layer" not in text
    assert text.startswith("m smooths its features from its first layer to its last (HFC/LFC 4.00 → 1.20)")
