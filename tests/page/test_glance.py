"""The first look at all models: a picture without an axis says no more than the words beside it."""

from __future__ import annotations

import re

import numpy as np
import pytest
from page.courses import Known

from unsmooth.page.glance import glance_table


@pytest.mark.parametrize(
    ("metric", "curve", "most"),
    [
        ("hfc_lfc", [4.06, 4.02, 3.98], 0.2),
        ("hfc_lfc", [2e-9, 6e-9, 1e-9], 0.1),  # rounding
        ("cosine_similarity", [-0.0659, -0.0658, -0.0657], 0.1),
        ("cosine_similarity", [1.0, 1 - 1e-15, 1.0], 0.1),
        ("effective_rank", [14.2, 14.3, 14.4], 0.2),
    ],
)
def test_a_slight_change_does_not_fill_its_picture(metric: str, curve: list[float], most: float) -> None:
    assert filled(metric, curve) <= most


@pytest.mark.parametrize(
    ("metric", "curve"),
    [("cosine_similarity", [0.1, 0.5, 0.9]), ("cosine_similarity", [0.9, 0.99, 0.999]), ("hfc_lfc", [1.0, 0.5, 0.8])],
)
def test_a_change_that_is_not_slight_fills_its_picture(metric: str, curve: list[float]) -> None:
    assert filled(metric, curve) == pytest.approx(1, abs=0.01)


def filled(metric: str, curve: list[float]) -> float:
    """How much of its picture's height a curve takes."""
    html = glance_table([Known("m", {"all": {metric: curve}}, noise=0.0, offset=0.0).subject()])
    picture = html[html.index('class="chart overlay"') :]
    (path,) = re.findall(r'd="m4 ([^"]*)" fill="none" stroke="var\(--model-0\)"', picture)
    _, *steps = re.sub(r"h[\d.]+", "", path).split("l")  # each is "across down", the space left out before a minus
    heights = np.cumsum([0.0, *(float(re.findall(r"-?[\d.]+", step)[1]) for step in steps)])
    return float(np.ptp(heights)) / 80
