"""Tokens of extreme norm: whether they carry a metric, which they are, and which layer made them.

Outliers carry a metric where leaving them out (the policy `no-outliers`) changes it by a quarter or more somewhere
along the residual stream; a cosine, which has no factor, by 0.1. Then what a page says and shows first is without
them. Whatever names an outlier and its maker in a report takes them from here: the few inputs that are attributed
could name another layer where several are nearly equal.
"""

from __future__ import annotations

import math

from unsmooth.analysis.measuring.extremes import Outliers, find_outliers
from unsmooth.analysis.measuring.measurement import Measurement
from unsmooth.analysis.policies import COUNT_PADDING, PADDED
from unsmooth.metrics.registry import DIRECTION, METRICS, by_panel

WITHOUT = "no-outliers"
LEAST_FACTOR = 1.25
LEAST_DIFFERENCE = 0.1
_OUTPUTS = ("blocks.0.pre", ".mid", ".post")  # a later layer's input is the output of the one before
_STREAM = (*_OUTPUTS, "_sum")


def is_padded(measurement: Measurement) -> bool:
    """Whether inputs hold padding that some policy counted."""
    return any(note.startswith(PADDED) for note in measurement.notes)


def carried(measurement: Measurement, policy: str, *, sums: bool = True) -> dict[str, str]:
    """The leading metrics that outliers carry under a token policy, each with the point where they carry most of it.

    Without `sums` what they carry before a norm of the stream, and not after it, is left out.
    None where `no-outliers` was not measured, nor where a policy counts padding: what that does is not theirs.
    """
    if policy == WITHOUT or WITHOUT not in measurement.about.settings.tokens:
        return {}
    if policy in COUNT_PADDING and is_padded(measurement):
        return {}
    found = {}
    for metric in (names[0] for names in by_panel(measurement.about.settings.metrics).values()):
        effects = _effects(measurement, metric, policy, _STREAM if sums else _OUTPUTS)
        point = max(effects, key=effects.__getitem__, default="")
        if point and effects[point] >= 1:
            found[metric] = point
    return found


def _effects(measurement: Measurement, metric: str, policy: str, points: tuple[str, ...]) -> dict[str, float]:
    """What leaving outliers out changes at each of these points, in units of what counts as carrying."""
    found = {}
    for cell, moments in measurement.cells.items():
        without = measurement.cells.get(cell._replace(tokens=WITHOUT))
        if (cell.metric, cell.tokens) != (metric, policy) or not cell.point.endswith(points) or without is None:
            continue
        extreme = measurement.extremes.get(_recorded(measurement, cell.point))
        if extreme is not None and not extreme.outliers.max > 0:
            continue  # other tokens differ between the two policies, but none is an outlier
        a, b = moments.mean, without.mean
        if METRICS[metric].panel == DIRECTION:
            effect = abs(a - b) / LEAST_DIFFERENCE
        elif a > 0 and b > 0 and math.isfinite(a) and math.isfinite(b):
            effect = abs(math.log(a) - math.log(b)) / math.log(LEAST_FACTOR)
        else:
            effect = 0.0 if a == b or math.isnan(a) or math.isnan(b) else math.inf
        found[cell.point] = 0.0 if math.isnan(effect) else effect
    return found


def _recorded(measurement: Measurement, point: str) -> str:
    """Where a point's extremes are: the first layer's input is most often the embedding's output."""
    return "embed" if point == "blocks.0.pre" and point not in measurement.extremes else point


def outliers(measurement: Measurement) -> Outliers | None:
    """Which token is extreme, and what made it: where outliers carry most of a metric, else where one is farthest out.

    None where there is no outlier, or where a file does not say.
    """
    padded = is_padded(measurement)
    asked = [policy for policy in measurement.about.settings.tokens if policy != WITHOUT]
    base = min(asked, key=lambda policy: padded and policy in COUNT_PADDING, default=WITHOUT)  # what pages begin with
    at = next(iter(carried(measurement, base).values()), None)
    return find_outliers(
        measurement.extremes, measurement.about.model.placement, None if at is None else _recorded(measurement, at)
    )
