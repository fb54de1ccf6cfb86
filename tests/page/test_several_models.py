"""Models whose courses are known by construction, beside each other: an order is claimed where their gap is clear."""

from __future__ import annotations

import pytest
import scipy.stats
from page.course_cases import FALL, line, said, sharp
from page.courses import Known, numbers


def compared(known: list[Known]) -> tuple[str, list[Known]]:
    (text,) = said([each.subject() for each in known])["comparison"]
    return text, sorted(known, key=lambda k: -k.depth("hfc_lfc", "all")[:, -1].mean())


@pytest.mark.parametrize(("noise", "offset"), [(0.02, 0.0), (0.02, 1.0), (9.0, 1.0)])
def test_models_of_different_depth_are_put_in_order_by_their_last_layer(noise: float, offset: float) -> None:
    a = Known("a", sharp(line(4, 1, 4)), noise, offset)
    b = Known("b", sharp(line(3, 2, 9)), noise, offset, seed=1)
    text, (far, near) = compared([a, b])
    gap = scipy.stats.ttest_rel(far.depth("hfc_lfc", "all")[:, -1], near.depth("hfc_lfc", "all")[:, -1])
    if gap.pvalue < 0.05:
        assert f"farthest apart in {far.name} (HFC/LFC 2.00) and closest together in {near.name} (1.00)" in text
        assert "is clear (its 95 % interval over samples leaves out zero)" in text
    else:  # no order is claimed
        assert (
            f"not clear in which model tokens are farther apart: HFC/LFC is 2.00 in {far.name} and 1.00 in {near.name}"
            in text
        )
        assert "(the 95 % interval of this gap over samples includes zero)" in text
        assert "farthest" not in text
    assert len(numbers(text)) <= 3
    assert (gap.pvalue < 0.05) == (offset == 0)


def test_models_that_end_alike_are_in_no_order() -> None:
    text, _ = compared([Known(name, sharp(FALL)) for name in ("a", "b", "c")])
    assert "After the last layer tokens are equally far apart in a, b and c (HFC/LFC 1.00)" in text
    assert "interval" not in text


def test_three_models_are_named_in_their_order_with_three_numbers_at_most() -> None:
    known = [
        Known(n, sharp(line(4, end, 4)), seed=k) for k, (n, end) in enumerate((("x", 2.0), ("y", 1.0), ("z", 3.0)))
    ]
    text, ordered = compared(known)
    places = [text.index(f" {each.name}") for each in ordered]
    assert places == sorted(places)
    assert numbers(text) == [3.0, 1.0, 95.0]
