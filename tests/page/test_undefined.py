"""Metrics that are no numbers at some depths or at all: the words say so, and nothing of a course that nobody saw."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection

import pytest
from page.course_cases import said
from page.courses import Known
from small_models import images, vit

import unsmooth
from unsmooth.analysis import Subject
from unsmooth.page.words.attribution import who_found

FALL = [1.0, 0.8, 0.6, 0.5, 0.3]
EVERYWHERE = range(5)


def words(value: float, depths: Collection[int], metric: str = "hfc_lfc") -> str:
    """What the page says of a model, one metric of which has this value at these depths."""
    known = Known("m", {"all": {"hfc_lfc": FALL, "effective_rank": FALL}})
    for cell, values in known.values.items():
        layer, point = int(cell.point.split(".")[1]), cell.point.split(".")[2]
        if cell.metric == metric and layer + (point != "pre") in depths:
            values[:] = value
    return said([known.subject()])["model"][0]


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("depths", [EVERYWHERE, EVERYWHERE[1:], EVERYWHERE[:-1]], ids=["all", "but-first", "but-last"])
def test_a_metric_without_two_numbers_has_no_course(value: float, depths: range) -> None:
    text = words(value, depths)
    assert text.startswith("m has no course that can be told (HFC/LFC ")
    assert f"; not finite at {len(depths)} of 5 depths)" in text
    assert "alike" not in text  # an infinite HFC/LFC is that of tokens whose mean is zero
    assert "agrees" not in text


@pytest.mark.parametrize("depths", [[2], [0, 1], [4]])
def test_depths_without_a_number_are_counted(depths: list[int]) -> None:
    left = [value for depth, value in enumerate(FALL) if depth not in depths]
    shown = f"(HFC/LFC {left[0]:#.3g} → {left[-1]:#.3g}; not finite at {len(depths)} of 5 depths)"
    assert f"m smooths its features from its first layer to its last {shown}" in words(math.nan, depths)


def test_another_metric_without_numbers_neither_agrees_nor_disagrees() -> None:
    text = words(math.inf, EVERYWHERE, "effective_rank")
    assert text.startswith(
        "m smooths its features in every layer (HFC/LFC 1.00 → 0.300). Effective rank has no course that"
    )


@pytest.mark.parametrize("shape", [lambda x: [1e-9, x, 1e-9], lambda x: [x, 1e-9, x]], ids=["hill", "dip"])
def test_a_hill_of_rounding_is_not_named(shape: Callable[[float], list[float]]) -> None:
    text = said([Known("m", {"all": {"hfc_lfc": shape(6e-9)}}).subject()])["model"][0]
    assert text.count("→") == 1
    assert "up to rounding all tokens of an input are alike" in text


def test_a_mean_of_rounding_is_no_start_of_a_course() -> None:
    """HFC/LFC of 5e7 in float32: what it was divided by is 0 but for rounding, and so is the fall from there."""
    text = words(5.2e7, [0])
    shown = "(HFC/LFC 0.800 → 0.300; the mean token is 0 up to rounding at 1 of 5 depths, left out here)"
    assert text.startswith(f"m smooths its features from its first layer to its last {shown}")
    text = words(5.2e7, EVERYWHERE)
    assert text.startswith("m has no course that can be told (HFC/LFC ")
    assert "the mean token is 0 up to rounding at 5 of 5 depths" in text
    assert "up to rounding" not in words(5.2e7, [0], "effective_rank")


def test_no_part_is_credited_with_a_mean_of_rounding() -> None:
    model = vit(class_token=False, global_pool="avg").eval()
    model.pos_embed.data.zero_()
    model.patch_embed.register_forward_hook(lambda module, args, x: x - x.mean(1, keepdim=True))
    found = unsmooth.attribute(model, images(1, 3))
    subject = Subject("mine", unsmooth.measure(model, images(1, 3), "hfc_lfc"), attribution=found)
    assert found.under().start.mean > math.log(1e6)
    assert who_found(subject, "all")[0]
    assert "who" not in said([subject])


@pytest.mark.parametrize("value", [math.nan, math.inf, 5.2e7])
def test_models_without_a_value_after_the_last_layer_have_no_place_in_the_order(value: float) -> None:
    models = [
        Known(name, {"all": {"hfc_lfc": [end * 4, end * 2, end]}}, offset=0.0)
        for name, end in (("a", 1.0), ("b", 2.0), ("c", 3.0))
    ]
    for cell, values in models[1].values.items():
        if cell.point == "blocks.1.post":
            values[:] = value
    (text,) = said([known.subject() for known in models])["comparison"]
    assert text.startswith(
        "After the last layer tokens are farthest apart in c (HFC/LFC 3.00) and closest together in a"
    )
