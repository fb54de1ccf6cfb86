"""Tokens of extreme norm: whether they carry a metric, which they are, and which layer made them.

Outliers carry a metric where leaving them out (the policy `no-outliers`) changes it by a quarter or more somewhere
along the residual stream; a cosine, which has no factor, by 0.1. Then what the page says and shows first is without
them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from unsmooth.analysis.cells import layer_of
from unsmooth.analysis.changes import BLOCK_STEPS
from unsmooth.analysis.measurement import Measurement
from unsmooth.metrics.registry import DIRECTION, METRICS, by_panel

WITHOUT = "no-outliers"
LEAST_FACTOR = 1.25
LEAST_DIFFERENCE = 0.1
NOTABLE = 5.0  # times the median norm: what is worth a word where `no-outliers` was not measured
_STREAM = ("blocks.0.pre", ".mid", ".post", "_sum")  # a later layer's input is the output of the one before


@dataclass(frozen=True)
class Outliers:
    """The token of extreme norm that most samples share.

    `layer` and `maker` (a kind of layer) are what changed its norm most, against the median norm, on the way to the
    point asked for; layer None for what is there before the first layer. `ratio` is that quotient after it (geometric
    mean over samples), and `position` where the token stands in at least two thirds of the samples, else None.
    """

    ratio: float
    position: int | None
    everywhere: bool  # in all samples
    layer: int | None
    maker: str


def carried(measurement: Measurement, policy: str) -> dict[str, str]:
    """The leading metrics that outliers carry under a token policy, each with the point where they carry most of it.

    None where `no-outliers` was not measured.
    """
    if policy == WITHOUT or WITHOUT not in measurement.about.settings.tokens:
        return {}
    found = {}
    for metric in (names[0] for names in by_panel(measurement.about.settings.metrics).values()):
        effects = _effects(measurement, metric, policy)
        point = max(effects, key=effects.__getitem__, default="")
        if point and effects[point] >= 1:
            found[metric] = point
    return found


def _effects(measurement: Measurement, metric: str, policy: str) -> dict[str, float]:
    """What leaving outliers out changes at each point of the stream, in units of what counts as carrying."""
    found = {}
    for cell, moments in measurement.cells.items():
        without = measurement.cells.get(cell._replace(tokens=WITHOUT))
        if (cell.metric, cell.tokens) != (metric, policy) or not cell.point.endswith(_STREAM) or without is None:
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


def first_policy(measurements: Sequence[Measurement], policies: Sequence[str]) -> str:
    """What heads the page: the first policy, unless outliers carry a metric of a model under it."""
    first = policies[0]
    if WITHOUT in policies and any(carried(measurement, first) for measurement in measurements):
        return WITHOUT
    return first


def outliers(measurement: Measurement, at: str | None = None) -> Outliers | None:
    """Which token is extreme at a point of the stream, and what made it; by default where it is most extreme.

    None where there is no outlier, or where a file does not say.
    """
    stream = list(measurement.extremes.items())
    sizes = [extreme.log_ratio.mean for _, extreme in stream]
    places = [point for point, _ in stream]
    if at is not None and _recorded(measurement, at) in places:
        peak = places.index(_recorded(measurement, at))
    else:
        peak = max(range(len(stream)), key=lambda k: abs(sizes[k]), default=-1)
    if peak < 0 or not stream[peak][1].outliers.max > 0 or not sizes[peak]:
        return None
    heading = math.copysign(1.0, sizes[peak])
    jumps = [(size - before) * heading for before, size in zip([0.0, *sizes], sizes[: peak + 1], strict=False)]
    made = max(range(len(jumps)), key=jumps.__getitem__)
    layer, name = layer_of(places[made]), places[made].rpartition(".")[2]
    positions = stream[peak][1].positions
    position, count = positions.most_common(1)[0]
    inside = layer is not None and name != "pre"
    placement = measurement.about.model.placement
    maker = next((kind for _, end, kind in BLOCK_STEPS["residual", placement] if end == name), "")
    return Outliers(
        math.exp(sizes[made]),
        position if 3 * count >= 2 * positions.total() else None,
        count == positions.total(),
        layer if inside else None,
        maker if inside else "",
    )
