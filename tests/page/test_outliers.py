"""Outlying tokens: what is said of them, and that headline, view and verdict are without them where they matter."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from page.course_cases import CASES, SINK, said
from page.courses import Known, moments, numbers, plain

from unsmooth.analysis.measuring.cells import Cell
from unsmooth.analysis.measuring.extremes import Extreme, find_outliers
from unsmooth.page import build_report
from unsmooth.page.data import shared_policies
from unsmooth.page.words.findings import _outlier_text, findings


def outlier_sentence(known: Known) -> str:
    return " ".join(said([known.subject()]).get("outliers", []))


def test_the_sink_is_named_with_its_layer_and_norm() -> None:
    text = outlier_sentence(CASES["a decoder with a sink"][0])
    points = list(SINK)
    jumps = {b: math.log(SINK[b][0] / SINK[a][0]) for a, b in pairwise(points)}
    _, layer, name = max(jumps, key=jumps.__getitem__).split(".")
    assert f"{ {'mid': 'attention', 'post': 'the MLP'}[name] } of layer {layer} brings its norm to" in text
    assert "the first token of every sample" in text
    assert numbers(text.removeprefix("In m ")) == [float(layer), SINK[f"blocks.{layer}.{name}"][0]]
    assert "carry HFC/LFC" in text


def test_headline_default_view_verdict_and_glance_are_without_outliers() -> None:
    known = CASES["a decoder with a sink"][0]
    subject = known.subject()
    assert shared_policies([subject])[0] == "no-outliers"
    html = build_report([subject])
    assert "tokens but outliers" in html
    everything = plain(html)
    assert "sharpens" not in everything.partition("The words of this page")[0]
    assert [f.parts[-2].view["tokens"] for f in findings([subject]) if f.about == "outliers"] == ["all"]  # type: ignore[union-attr]


@pytest.mark.parametrize(("factor", "first"), [(1.24, "all"), (1.26, "no-outliers"), (1 / 1.26, "no-outliers")])
def test_outliers_carry_a_metric_from_a_quarter_on(factor: float, first: str) -> None:
    curve = [2.0, 2.0 * factor, 2.0]
    known = Known("m", {"all": {"hfc_lfc": curve}, "no-outliers": {"hfc_lfc": [2.0, 2.0, 2.0]}}, offset=0.1)
    assert shared_policies([known.subject()])[0] == first
    assert bool(outlier_sentence(known)) == (first == "no-outliers")


def test_what_outliers_carry_before_a_norm_is_not_said_of_the_features_after_it() -> None:
    """MiniLM: an MLP writes a long token, and the norm after the sum makes it short again."""
    curve, extremes = [4.0, 3.0, 2.0], dict.fromkeys(("blocks.0.mid", "blocks.0.post"), (1.1, 0, 0.0))
    known = Known("m", {"all": {"hfc_lfc": curve}, "no-outliers": {"hfc_lfc": curve}}, placement="post",
                  extremes={**extremes, "blocks.0.mlp_sum": (15.0, 0, 1.0)})  # fmt: skip
    known.values[Cell("blocks.0.mlp_sum", "hfc_lfc", "all")] *= 2
    assert shared_policies([known.subject()])[0] == "no-outliers"
    before = "Such tokens carry HFC/LFC before the norms and nothing after them, so what is said here leaves them out"
    averaging = "leave tokens of extreme norm out before averaging"
    assert before in outlier_sentence(known)
    assert averaging not in plain(build_report([known.subject()]))
    known.extremes = {**known.extremes, "blocks.0.post": (15.0, 0, 1.0)}
    known.values[Cell("blocks.0.post", "hfc_lfc", "all")] *= 2
    assert "Such tokens carry HFC/LFC, so what is said" in outlier_sentence(known)
    assert averaging in plain(build_report([known.subject()]))


def test_a_metric_that_outliers_carry_before_the_norms_only_is_told_from_one_that_they_carry_after_them_too() -> None:
    """MPNet: after the norms HFC/LFC still differs, and effective rank does no more."""
    curves = {"hfc_lfc": [4.0, 3.0, 2.0], "effective_rank": [40.0, 30.0, 20.0]}
    long = dict.fromkeys(("blocks.0.mlp_sum", "blocks.0.post"), (15.0, 0, 1.0))
    known = Known("m", {"all": curves, "no-outliers": curves}, placement="post", extremes=long)
    for point, metric in (("mlp_sum", "hfc_lfc"), ("post", "hfc_lfc"), ("mlp_sum", "effective_rank")):
        known.values[Cell(f"blocks.0.{point}", metric, "all")] *= 2
    said = "Such tokens carry HFC/LFC, and effective rank before the norms only, so what is said here leaves them out"
    assert said in outlier_sentence(known)


@pytest.mark.parametrize(("gap", "first"), [(0.09, "all"), (0.11, "no-outliers")])
def test_of_a_cosine_the_difference_counts(gap: float, first: str) -> None:
    curves = {"all": {"cosine_similarity": [0.01, 0.05]}, "no-outliers": {"cosine_similarity": [0.01, 0.05 + gap]}}
    assert shared_policies([Known("m", curves).subject()])[0] == first


def test_other_tokens_than_outliers_do_not_carry_a_metric() -> None:
    extremes = dict.fromkeys(("blocks.0.pre", "blocks.0.mid", "blocks.0.post"), (1.5, 0, 0.0))
    curves = {"all": {"hfc_lfc": [2.0, 4.0]}, "no-outliers": {"hfc_lfc": [2.0, 2.0]}}  # special tokens, say
    assert shared_policies([Known("m", curves, extremes=extremes).subject()])[0] == "all"


@pytest.mark.parametrize(("name", "words"), [
    ("outliers at changing positions", "one token of each sample, not always at the same position,"),
    ("an outlier from the start", "the token at position 3 of every sample is an outlier: before the first layer"),
    ("a vanished token", "the token at position 5 of every sample is an outlier: the MLP of layer 1 shrinks its norm"),
    ("outliers of a file that does not say which", "the file does not say which"),
    ("a sink that is not measured", "What it carries is not known"),
])  # fmt: skip
def test_outliers_have_a_sentence_of_their_own(name: str, words: str) -> None:
    text = outlier_sentence(CASES[name][0])
    assert words in text
    assert len(numbers(text.removeprefix("In m "))) <= 3


LONG, PLAIN, SHORT = math.log(20.0), math.log(1.1), math.log(0.01)


@pytest.mark.parametrize(("sizes", "counts", "words"), [
    ([LONG] * 8, [1] * 8, "one token of each sample, not always at the same position, is an outlier: the MLP of layer "
     "1 brings its norm to 20 times"),
    ([LONG] * 5 + [PLAIN] * 3, [1] * 5 + [0] * 3, "one token of some samples is an "
     "outlier: the MLP of layer 1 brings its norm to up to 20 times"),
    ([LONG] * 4 + [SHORT] * 4, [0] + [1] * 7, "one token of some samples is an "
     "outlier: the MLP of layer 1 shrinks its norm down to 0.01 times"),
    ([720.0] * 8, [1] * 8, "brings its norm to ∞ times the median, which is 0"),  # as `log_ratios` has it
    ([-1400.0] * 8, [1] * 8, "shrinks its norm to "),
    ([LONG] * 8, [4] * 8, "several tokens of each sample are outliers: the MLP of layer 1 brings the norm of the "
     "farthest to 20 times"),
])  # fmt: skip
def test_how_many_tokens_of_how_many_samples_are_outliers(sizes: list[float], counts: list[int], words: str) -> None:
    known = CASES["outliers at changing positions"][0].subject()
    there = {p: e for p, e in known.measurement.extremes.items() if e.outliers.max > 0}
    for extreme in there.values():
        extreme.log_ratio, extreme.outliers = moments(np.array(sizes)), moments(np.array(counts, dtype=float))
    assert words in " ".join(said([known])["outliers"])


@pytest.mark.parametrize("name", ["outliers that carry nothing", "falling", "flat"])
def test_without_outliers_that_matter_there_is_no_such_sentence(name: str) -> None:
    assert outlier_sentence(CASES[name][0]) == ""


PADDING = "the inputs hold padding, which tokens='all' counts as tokens; tokens='content' leaves it out"


@pytest.mark.parametrize("ratio", [3.0, 30.0])
def test_what_padding_does_to_a_metric_is_not_said_of_outliers(ratio: float) -> None:
    """`all` counts padding and `no-outliers` does not, so their difference is no property of outliers."""
    extremes = dict.fromkeys(("blocks.0.pre", "blocks.0.mid", "blocks.0.post"), (ratio, 0, 1.0))
    curves = {"all": {"hfc_lfc": [2.0, 4.0]}, "no-outliers": {"hfc_lfc": [2.0, 2.0]}}
    subject = Known("m", curves, extremes=extremes, notes=[PADDING]).subject()
    found = said([subject])
    assert shared_policies([subject])[0] == "no-outliers"
    assert "carry" not in str(found)
    assert "extreme norm" not in found["advice"][0]
    sentence = " ".join(found.get("outliers", []))
    assert sentence.endswith("What is said here leaves such tokens and padding out.") == (ratio > 5)
    assert "tokens but outliers and padding" in build_report([subject])


def _mixed(logs: list[float], outliers: list[float], places: list[int]) -> Extreme:
    return Extreme(moments(np.array(logs)), moments(np.array(outliers)), Counter(places))


def test_long_tokens_of_some_samples_and_short_ones_of_the_others_are_not_averaged() -> None:
    """The first token is short in all samples, and in half of them another is 400 times the median."""
    short, far = math.log(0.05), math.log(400)
    before = _mixed([short] * 8, [1] * 8, [0] * 8)
    after = _mixed([short, far] * 4, [1, 2] * 4, [0, 5] * 4)
    found = find_outliers({"blocks.0.pre": before, "blocks.0.mid": before, "blocks.0.post": after}, "pre")
    assert found is not None
    assert found.ratio == pytest.approx(400)
    assert (found.layer, found.maker, found.in_all, found.position) == (0, "MLP", False, None)
    text = _outlier_text(found)
    assert text == (
        "several tokens of some samples are outliers: the MLP of layer 0 brings the norm of the farthest to up to 400 "
        "times the median"
    )


def test_where_few_samples_have_an_outlier_no_position_is_claimed_for_it() -> None:
    """The farthest token of a sample without an outlier stands somewhere too."""
    quiet, far = math.log(1.3), math.log(30)
    found = find_outliers({"blocks.0.post": _mixed([quiet] * 7 + [far], [0] * 7 + [1], [0] * 7 + [9])}, "pre")
    assert found is not None
    assert found.position is None
    assert _outlier_text(found).startswith(
        "one token of some samples is an outlier: the MLP of layer 0 brings its norm"
    )
