"""Limits on what was measured, for alarms and for `unsmooth check`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple

from unsmooth.analysis.measurement import Cell, Measurement, kind_of
from unsmooth.errors import OptionError, PointError
from unsmooth.metrics.registry import METRICS, resolve

Bound = Literal["max", "min"]


@dataclass(frozen=True)
class Limit:
    """The most or the least that a metric's mean may be at some points.

    `points` is a name or a pattern (`blocks.*.post`); the word `residual` means every measured state of the stream.
    """

    bound: Bound
    metric: str
    value: float
    points: str = "residual"

    def __post_init__(self) -> None:
        if self.bound not in ("max", "min"):
            raise OptionError.unknown("bound of a limit", self.bound, ("max", "min"))
        if self.metric not in METRICS:
            raise OptionError.unknown("metric", self.metric, METRICS)
        if math.isnan(self.value):
            raise OptionError(f"a limit on {self.metric} must be a number, got nan")

    @classmethod
    def parse(cls, bound: Bound, text: str) -> Limit:
        """A limit written as METRIC=VALUE or METRIC=VALUE@POINTS.

        >>> Limit.parse("max", "cosine_similarity=0.95@blocks.11.post")
        Limit(bound='max', metric='cosine_similarity', value=0.95, points='blocks.11.post')
        """
        condition, at, points = text.partition("@")
        metric, equals, value = condition.partition("=")
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not equals or math.isnan(number) or (at and not points.strip()):
            raise OptionError(
                "expected METRIC=VALUE or METRIC=VALUE@POINTS, such as cosine_similarity=0.95@blocks.11.post, "
                f"got {text!r}"
            )
        rows = resolve(metric)
        if len(rows) != 1:
            raise OptionError(f"{metric.strip()!r} stands for {len(rows)} metrics: expected one of them in {text!r}")
        return cls(bound, rows[0].name, number, points.strip() or "residual")

    def allows(self, value: float) -> bool:
        """Whether a value keeps to the limit; nan keeps to none."""
        return value <= self.value if self.bound == "max" else value >= self.value

    def covers(self, point: str) -> bool:
        """Whether the limit speaks of this point."""
        return kind_of(point) == "residual" if self.points == "residual" else fnmatchcase(point, self.points)

    def __str__(self) -> str:
        return f"{self.metric} {'≤' if self.bound == 'max' else '≥'} {self.value:g} at {self.points}"


class Crossing(NamedTuple):
    """A number beyond its limit."""

    limit: Limit
    cell: Cell
    value: float

    def __str__(self) -> str:
        point, metric, tokens = self.cell
        return f"{metric} at {point} ({tokens} tokens) is {self.value:.4g}, limit {self.limit}"


def covered(measurement: Measurement, limit: Limit, tokens: Sequence[str]) -> list[Cell]:
    """The numbers that a limit is about; an error that says what was measured when there is none."""
    settings = measurement.about.settings
    if limit.metric not in settings.metrics:
        raise OptionError.unknown("metric of this measurement", limit.metric, settings.metrics)
    found = [c for c in measurement.cells if c.metric == limit.metric and c.tokens in tokens and limit.covers(c.point)]
    if not found:
        points = list(dict.fromkeys(cell.point for cell in measurement.cells))
        shown = ", ".join(points if len(points) <= 9 else [*points[:4], "…", *points[-4:]])
        raise PointError(f"no measured point matches {limit.points!r}: this measurement has {shown}")
    return found


def crossings(measurement: Measurement, limits: Iterable[Limit], tokens: Sequence[str] | None = None) -> list[Crossing]:
    """Every mean that is beyond a limit, under the given token policies (all that were measured by default)."""
    measured = measurement.about.settings.tokens
    for policy in tokens or ():
        if policy not in measured:
            raise OptionError.unknown("token policy of this measurement", policy, measured)
    return [
        Crossing(limit, cell, measurement.cells[cell].mean)
        for limit in limits
        for cell in covered(measurement, limit, tokens or measured)
        if not limit.allows(measurement.cells[cell].mean)
    ]
