"""Metrics that are no numbers at some depths or at all: the words say so, and nothing of a course that nobody saw."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection

import pytest
from page.course_cases import said
from page.courses import Known

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
    shown = f"(HFC/LFC {left[0]:g} → {left[-1]:g}; not finite at {len(depths)} of 5 depths)"
    assert f"m smooths its features from its first layer to its last {shown}" in words(math.nan, depths)


def test_another_metric_without_numbers_neither_agrees_nor_disagrees() -> None:
    text = words(math.inf, EVERYWHERE, "effective_rank")
    assert text.startswith("m smooths its features in every layer (HFC/LFC 1 → 0.3). Effective rank has no course that")


@pytest.mark.parametrize("shape", [lambda x: [1e-9, x, 1e-9], lambda x: [x, 1e-9, x]], ids=["hill", "dip"])
def test_a_hill_of_rounding_is_not_named(shape: Callable[[float], list[float]]) -> None:
    text = said([Known("m", {"all": {"hfc_lfc": shape(6e-9)}}).subject()])["model"][0]
    assert text.count("→") == 1
    assert "up to rounding all tokens of an input are alike" in text
