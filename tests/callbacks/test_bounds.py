"""Limits: how they are written, what they cover, when they are crossed."""

from __future__ import annotations

import math

import pytest
from results import about_measured

from unsmooth.analysis.measuring.cells import Cell
from unsmooth.analysis.measuring.measurement import Measurement
from unsmooth.callbacks import Bound, crossings
from unsmooth.errors import OptionError, PointError
from unsmooth.metrics.moments import Moments


def measured(**values: float) -> Measurement:
    """Cosine similarities by point (`_` for `.`), under the policies all and patches (0.1 more)."""
    cells = {
        Cell(point.replace("__", "."), "cosine_similarity", policy): Moments(2, value + more)
        for point, value in values.items()
        for policy, more in (("all", 0.0), ("patches", 0.1))
    }
    settings = {"metrics": ["cosine_similarity"], "tokens": ["all", "patches"]}
    return Measurement(cells, {}, about_measured(settings=settings))


RUN = measured(embed=0.1, blocks__0__attn=0.99, blocks__0__post=0.5, blocks__1__post=0.7)


@pytest.mark.parametrize(
    ("bound", "text", "tokens", "expected"),
    [
        ("max", "cosine_similarity=0.65@blocks.*.post", ["all"], ["blocks.1.post"]),
        ("max", "cosine-similarity=0.65", ["all"], ["blocks.1.post"]),  # residual points only: attn is not one
        ("max", "cosine_similarity=0.7@blocks.1.post", ["all"], []),  # the limit itself is allowed
        ("max", "cosine_similarity=0.7@blocks.1.post", None, ["blocks.1.post"]),  # patches cross it
        ("min", "cosine_similarity=0.5@*", ["all"], ["embed"]),
        ("min", "cosine_similarity=0.1@embed", ["all", "patches"], []),
        ("max", "cosine_similarity=-inf@embed", ["all"], ["embed"]),
    ],
)
def test_crossings(bound: str, text: str, tokens: list[str] | None, expected: list[str]) -> None:
    found = crossings(RUN, [Bound.parse(bound, text)], tokens)
    assert [c.cell.point for c in found] == expected


def test_a_crossing_says_where_what_and_how_much() -> None:
    (found,) = crossings(RUN, [Bound.parse("max", "cosine_similarity=0.6@blocks.1.post")], ["all"])
    assert str(found) == ("cosine_similarity at blocks.1.post (all tokens) is 0.7, above the bound 0.6")


@pytest.mark.parametrize("bound", ["max", "min"])
def test_nan_keeps_to_no_limit(bound: str) -> None:
    run = measured(embed=math.nan)
    assert len(crossings(run, [Bound(bound, "cosine_similarity", 0.5)], ["all"])) == 1


@pytest.mark.parametrize(
    ("bound", "text", "message"),
    [
        ("max", "cosine_similarity", "expected METRIC=VALUE"),
        ("max", "cosine_similarity=high", "got 'cosine_similarity=high'"),
        ("max", "cosine_similarity=nan", "expected METRIC=VALUE"),
        ("max", "cosine_similarity=1@", "METRIC=VALUE@POINTS"),
        ("max", "cosin=1", "unknown metric 'cosin'"),
        ("max", "paper=1", "'paper' stands for 3 metrics"),
        ("between", "cosine_similarity=1", "unknown side of a bound 'between'"),
    ],
)
def test_bad_limits_are_explained(bound: str, text: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Bound.parse(bound, text)


def test_nan_limits_and_unknown_metrics_are_refused() -> None:
    with pytest.raises(OptionError, match="must be a number, got nan"):
        Bound("max", "hfc_lfc", math.nan)
    with pytest.raises(OptionError, match="unknown metric 'x'"):
        Bound("max", "x", 1.0)


def test_what_was_not_measured_is_an_error() -> None:
    with pytest.raises(OptionError, match="unknown metric of this measurement 'hfc_lfc'"):
        crossings(RUN, [Bound("max", "hfc_lfc", 1.0)])
    with pytest.raises(PointError, match="no measured point matches 'blocks.9.post': this measurement has embed, "):
        crossings(RUN, [Bound("max", "cosine_similarity", 1.0, "blocks.9.post")])
    with pytest.raises(OptionError, match="unknown token policy of this measurement 'content'"):
        crossings(RUN, [Bound("max", "cosine_similarity", 1.0)], ["content"])
