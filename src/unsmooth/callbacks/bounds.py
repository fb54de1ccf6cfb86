"""Bounds on what was measured, for alarms and for `unsmooth check`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple

from unsmooth.analysis.measuring.cells import Cell, kind_of
from unsmooth.analysis.measuring.measurement import Measurement
from unsmooth.errors import OptionError, PointError
from unsmooth.metrics.registry import METRICS, resolve

Side = Literal["max", "min"]


@dataclass(frozen=True)
class Bound:
    """An upper (`side="max"`) or lower ("min") bound of a metric's mean at some points.

    `points` is a name or a pattern (`blocks.*.post`); the word `residual` means every measured state of the stream.
    """

    side: Side
    metric: str
    value: float
    points: str = "residual"

    def __post_init__(self) -> None:
        if self.side not in ("max", "min"):
            raise OptionError.unknown("side of a bound", self.side, ("max", "min"))
        if self.metric not in METRICS:
            raise OptionError.unknown("metric", self.metric, METRICS)
        if math.isnan(self.value):
            raise OptionError(f"a bound on {self.metric} must be a number, got nan")

    @classmethod
    def parse(cls, side: Side, text: str) -> Bound:
        """A bound written as METRIC=VALUE or METRIC=VALUE@POINTS.

        >>> Bound.parse("max", "cosine_similarity=0.95@blocks.11.post")
        Bound(side='max', metric='cosine_similarity', value=0.95, points='blocks.11.post')
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
        return cls(side, rows[0].name, number, points.strip() or "residual")

    def allows(self, value: float) -> bool:
        """Whether a value keeps to the bound; nan keeps to none."""
        return value <= self.value if self.side == "max" else value >= self.value

    def covers(self, point: str) -> bool:
        """Whether the bound speaks of this point."""
        return kind_of(point) == "residual" if self.points == "residual" else fnmatchcase(point, self.points)

    def __str__(self) -> str:
        return f"{self.metric} {'≤' if self.side == 'max' else '≥'} {self.value:g} at {self.points}"


class Crossing(NamedTuple):
    """A number beyond its bound."""

    bound: Bound
    cell: Cell
    value: float

    def __str__(self) -> str:
        point, metric, tokens = self.cell
        side = "beyond" if math.isnan(self.value) else {"max": "above", "min": "below"}[self.bound.side]
        return f"{metric} at {point} ({tokens} tokens) is {self.value:.4g}, {side} the bound {self.bound.value:g}"


def covered(measurement: Measurement, bound: Bound, tokens: Sequence[str]) -> list[Cell]:
    """The numbers that a bound is about; an error that says what was measured when there is none."""
    settings = measurement.about.settings
    if bound.metric not in settings.metrics:
        raise OptionError.unknown("metric of this measurement", bound.metric, settings.metrics)
    found = [c for c in measurement.cells if c.metric == bound.metric and c.tokens in tokens and bound.covers(c.point)]
    if not found:
        points = list(dict.fromkeys(cell.point for cell in measurement.cells))
        shown = ", ".join(points if len(points) <= 9 else [*points[:4], "…", *points[-4:]])
        raise PointError(f"no measured point matches {bound.points!r}: this measurement has {shown}")
    return found


def crossings(measurement: Measurement, bounds: Iterable[Bound], tokens: Sequence[str] | None = None) -> list[Crossing]:
    """Every mean that is beyond a bound, under the given token policies (all that were measured by default)."""
    chosen = _policies(measurement, tokens)
    return [
        Crossing(bound, cell, measurement.cells[cell].mean)
        for bound in bounds
        for cell in covered(measurement, bound, chosen)
        if not bound.allows(measurement.cells[cell].mean)
    ]


def nearest(measurement: Measurement, bound: Bound, tokens: Sequence[str] | None = None) -> str:
    """Of a bound that holds: the number that comes nearest to it, in words."""
    cells = covered(measurement, bound, _policies(measurement, tokens))
    cell = (max if bound.side == "max" else min)(cells, key=lambda cell: measurement.cells[cell].mean)
    side = {"max": "at most", "min": "at least"}[bound.side]
    said = f"{cell.metric} at {cell.point} ({cell.tokens} tokens) is {measurement.cells[cell].mean:.4g}"
    others = f"; nearest of {len(cells)} numbers" if len(cells) > 1 else ""
    return f"{said}, {side} {bound.value:g}{others}"


def _policies(measurement: Measurement, tokens: Sequence[str] | None) -> Sequence[str]:
    measured = measurement.about.settings.tokens
    for policy in tokens or ():
        if policy not in measured:
            raise OptionError.unknown("token policy of this measurement", policy, measured)
    return tokens or measured
