"""What is said of weights and theory follows from the numbers, in words for shares."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from page.courses import Known, plain
from results import about_explained

from unsmooth.analysis import Explanation, Subject
from unsmooth.page.words.findings import findings
from unsmooth.page.words.theory import eigenvalue_shares


def explained(
    signs: list[tuple[float, float]],
    values: list[complex],
    kinds: list[str] | None = None,
    folded: bool = True,
    placement: str = "pre",
) -> Subject:
    """γ and the measured step of each layer, the eigenvalues of every layer, the type of each head."""
    rows = [
        {"layer": i, "input": 0, "step": 2.0, "exponent": predicted, "measured_ratio": measured}
        for i, (predicted, measured) in enumerate(signs)
    ]
    heads = [
        {"layer": 0, "head": h, "input": 0, "paper_kind": "mixed", "paper_endpoint": "largest", "endpoint": "largest",
         "kind": kind} for h, kind in enumerate(kinds or [])
    ]  # fmt: skip
    spectra = [
        {"layer": i, "folded": folded, "layer_values": torch.tensor(values), "head_values": torch.tensor([values])}
        for i in range(len(signs))
    ]
    known = Known("x", {"all": {"hfc_lfc": [2.0 - 0.1 * i for i in range(len(signs) + 1)]}}, placement=placement)
    return Subject("x", known.subject().measurement, Explanation(rows, heads, [], spectra, about_explained()))


def said(subject: Subject) -> str:
    return plain(findings([subject])[0].html())


@pytest.mark.parametrize(("values", "words"), [
    ([-0.3 + 0j, -0.2, -0.1, 0.1], "Most eigenvalues of H with normalisation folded in are negative, the sharpening"),
    ([-0.3 + 0j, 0.2, 0.1, 0.1], "Most eigenvalues of H with normalisation folded in are positive, the smoothing"),
    ([-0.3 + 0j, -0.2, 0.1, 0.1], "lie on both sides of zero in about equal parts"),
    ([0.3 + 0j, 0.2, 0.1, 0.1], "All eigenvalues of H with normalisation folded in are positive"),
    ([-0.3 + 0j] * 30 + [0.0], "folded in are negative, the sharpening side (zeros apart)"),
    ([0.3 + 0j, 0.2, 0.0, 0.0], "are positive, the smoothing side (zeros, of which there are many, apart)"),
])  # fmt: skip
def test_the_side_of_zero_is_that_of_most_eigenvalues(values: list[complex], words: str) -> None:
    subject = explained([(1.0, 1.0)] * 2, values)
    assert words in said(subject)
    assert subject.explanation is not None
    real = torch.tensor(values).real
    assert eigenvalue_shares(subject.explanation)[:3] == pytest.approx(
        [float((real < 0).double().mean()), float((real > 0).double().mean()), float((real == 0).double().mean())]
    )


@pytest.mark.parametrize(("negative", "words"), [
    ([40, 40, 0, 0], "in about equal parts: in about half of the layers nearly all are negative and in about half of "
                     "the layers nearly all are positive;"),
    ([40, 20, 20, 1], "in about equal parts: in a minority of the layers nearly all are negative and in a minority of "
                      "the layers nearly all are positive;"),
    ([40, 40, 40, 0], "are negative, the sharpening side: in a minority of the layers nearly all are positive;"),
    ([40, 40, 40, 4], "are negative, the sharpening side;"),
    ([20, 20, 20, 20], "in about equal parts;"),
])  # fmt: skip
def test_layers_that_are_one_sided_are_told_where_all_together_are_not(negative: list[int], words: str) -> None:
    subject = explained([(1.0, 1.0)] * 4, [0.1])
    assert subject.explanation is not None
    for row, count in zip(subject.explanation.spectra, negative, strict=True):
        row["layer_values"] = torch.tensor([-0.1 + 0j] * count + [0.1 + 0j] * (40 - count))
    assert words in said(subject)


def test_a_step_of_a_post_norm_model_is_said_to_hold_the_norm() -> None:
    """Attention alone may raise HFC/LFC where the step, with the norm after it, lowers it."""
    for signs in ([(1.0, -1.0)] * 2, [(1.0, -1.0), (1.0, 1.0)]):
        assert "attention’s steps, each with the norm after it," in said(explained(signs, [0.3 + 0j], placement="post"))
        assert "norm after it" not in said(explained(signs, [0.3 + 0j]))


def test_bare_weights_are_not_said_to_be_folded() -> None:
    assert "All eigenvalues of H are positive" in said(explained([(1.0, 1.0)] * 2, [0.3 + 0j, 0.2], folded=False))


@pytest.mark.parametrize(("sharpening", "words"), [
    (0, "in no head;"), (1, "in a minority of the heads"), (5, "in about half of the heads"), (8, "in most heads"),
    (10, "in all heads"),
])  # fmt: skip
def test_how_often_the_sharpening_type_dominates_is_said_in_words(sharpening: int, words: str) -> None:
    kinds = ["sharpening"] * sharpening + ["smoothing"] * (10 - sharpening)
    assert f"the sharpening type dominates {words}" in said(explained([(1.0, 1.0)] * 2, [0.1 + 0j], kinds))


@pytest.mark.parametrize(("signs", "words"), [
    ([(1, 1), (-1, -1)] * 10, "steps better than always guessing the more frequent sign"),
    ([(1, 1), (1, 1), (-1, -1), (1, -1)], "steps not clearly better than always guessing the more frequent sign"),
    ([(1, 1), (-1, 1), (-1, -1), (1, -1)], "steps no better than always guessing the more frequent sign"),
    ([(1, 1), (1, 1), (1, 1), (-1, 1)], "all have the same sign, which γ has in most cases"),
    ([(-1, 1), (-1, 1)], "all have the same sign, which γ has in no case"),
])  # fmt: skip
def test_gamma_is_held_against_guessing(signs: list[tuple[float, float]], words: str) -> None:
    right = sum(a * b > 0 for a, b in signs) / len(signs)
    up = sum(b > 0 for _, b in signs) / len(signs)
    text = said(explained([(float(a), float(b)) for a, b in signs], [0.1 + 0j]))
    assert words in text
    if 0 < up < 1:
        assert (" better" in text.replace("no better", "")) == (right > max(up, 1 - up))


@pytest.mark.parametrize(("lowest", "words"), [(-1.6, "In all layers the step overshoots"), (-0.4, "")])
def test_a_step_too_long_for_a_negative_eigenvalue_is_named(lowest: float, words: str) -> None:
    text = said(explained([(-1.0, 1.0)] * 3, [lowest + 0j, 0.1]))  # s = 2: s·λ = −3.2 or −0.8
    assert ("overshoots" in text) == bool(words)
    assert words.lower() in text.lower()


def test_gamma_is_held_against_the_steps_of_the_tokens_that_head_the_page() -> None:
    """Outliers carry HFC/LFC: with every token half of the steps rise, without outliers all of them fall."""
    signs = [(-1.0, 1.0), (-1.0, -1.0)] * 2
    curves = {"all": {"hfc_lfc": [2.0, 1.8, 1.6, 1.4, 1.2]}, "no-outliers": {"hfc_lfc": [4.0, 3.6, 3.2, 2.8, 2.4]}}
    first = explained(signs, [0.1 + 0j])
    assert first.explanation is not None
    rows = [row | {"policy": "all"} for row in first.explanation.layers]
    rows += [row | {"policy": "no-outliers", "measured_ratio": -1.0} for row in rows]
    subject = replace(first, measurement=Known("x", curves).subject().measurement,
                      explanation=replace(first.explanation, layers=rows))  # fmt: skip
    assert "all have the same sign, which γ has in all cases" in said(subject)


def test_without_an_explanation_nothing_is_said_of_weights() -> None:
    assert "eigenvalues" not in said(Known("x", {"all": {"hfc_lfc": [2.0, 1.0]}}).subject())
