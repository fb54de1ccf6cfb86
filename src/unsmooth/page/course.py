"""The course of a metric over depth: where features smooth, where they sharpen, and where neither is clear.

The same rule for every model:

1. The curve is the mean over samples at the input of the first layer and after every layer.
2. It turns where it goes back by at least a fifth of its range; of more than two turns the smallest go first.
3. Each stretch between turns is tested by the paired differences of its two ends over samples (Student's t), those of
   logarithms where a metric is positive and has a factor: samples of very different levels then count alike. All
   statements of one curve are right together in 95 % of cases: 1 % of doubt belongs to the whole curve from its first
   point to its last, which nobody chose, and 4 % to all other pairs of depths together, because turns were chosen by
   looking at the curve. That is the largest |t| of all pairs under flipped signs (`metrics.sign_flips`); fewer than
   six samples have too few flips for it, and are tested with Bonferroni's correction.
4. A stretch that is not clear joins those around it; at either end of the curve it stays, as no clear change.
5. What is clear may still be small: below a tenth (of a cosine: below 0.05) the words say "slightly".

One sample has nothing to test: its course is described as it is, and the page says that there was one sample. That
holds for a metric of one sample among more (effective rank within its budget): it neither agrees nor disagrees.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise

import numpy as np
import numpy.typing as npt

from unsmooth.analysis.measuring.cells import Cell
from unsmooth.analysis.measuring.changes import BLOCK_STEPS
from unsmooth.analysis.measuring.measurement import Measurement
from unsmooth.analysis.subject import Subject
from unsmooth.metrics.differences import Difference, paired_difference
from unsmooth.metrics.moments import Moments
from unsmooth.metrics.registry import DIRECTION, METRICS, by_panel
from unsmooth.metrics.sign_flips import joint_p
from unsmooth.metrics.student import student_p
from unsmooth.page.data import shared_metrics
from unsmooth.page.rounding import meanless, rounding

LEAST_TURN = 0.2  # of the curve's range
MOST_TURNS = 2
STANDS_OUT = 1.25
SLIGHT_FACTOR, SLIGHT_DIFFERENCE = 1.1, 0.05
DOUBT, WHOLE = 0.05, 0.01  # of a curve's statements together, and of that on the whole curve


@dataclass(frozen=True)
class Stretch:
    """Layers `first` to `last`, over which a metric goes from `before` to `after`.

    `way` is +1 where features clearly smooth, −1 where they clearly sharpen, 0 where neither is clear; `strongest` is
    the layer that goes farthest that way, by a quarter or more; None where no layer stands out like that. `slight` is
    a change by less than a tenth, however clear samples make it. `uneven` is one that goes back on the way by as much
    as makes a turn: what was not clear, or one turn too many.
    """

    first: int
    last: int
    before: float
    after: float
    way: int
    strongest: int | None
    slight: bool = False
    uneven: bool = False


def leading_metrics(subjects: Sequence[Subject]) -> list[str]:
    """The first measured metric of each panel: HFC/LFC, cosine similarity, effective rank by default."""
    return [names[0] for names in by_panel(shared_metrics(subjects)).values()]


def course(measurement: Measurement, metric: str, policy: str) -> tuple[Stretch, ...]:
    """The stretches of a metric's curve from the first layer to the last; see the rule above."""
    curve = Curve(measurement, metric, policy)
    places = _turns(curve.means)
    while (hole := _unclear(curve, places)) is not None:
        places = [place for place in places if place not in hole]
    return tuple(curve.stretch(i, j) for i, j in pairwise(places))


def ways(stretches: Sequence[Stretch]) -> tuple[int, ...]:
    """The shape of a course: +1 for each clear smoothing, −1 for each clear sharpening, in their order."""
    return tuple(stretch.way for stretch in stretches if stretch.way)


def ends(measurement: Measurement, metric: str, policy: str) -> tuple[Moments, Moments]:
    """The residual stream before the first and after the last layer."""
    cells = Curve(measurement, metric, policy).cells
    return measurement.cells[cells[0]], measurement.cells[cells[-1]]


class Curve:
    """A metric along the residual stream at the depths that were measured: before the first layer, after each."""

    def __init__(self, measurement: Measurement, metric: str, policy: str) -> None:
        self.measurement, self.metric = measurement, metric
        points = [cell.point for cell in measurement.cells if cell.metric == metric and cell.tokens == policy]
        layers = range(measurement.about.model.layers)
        found = {-1: next((p for p in ("blocks.0.pre", "embed") if p in points), "")}  # the last layer passed -> point
        found |= {layer: f"blocks.{layer}.post" for layer in layers if f"blocks.{layer}.post" in points}
        known = {layer: Cell(point, metric, policy) for layer, point in found.items() if point}
        if len(known) < 2:  # what was measured stands for the ends
            known = {-1: Cell(points[0], metric, policy), layers[-1]: Cell(points[-1], metric, policy)}
        finite = {layer: cell for layer, cell in known.items() if math.isfinite(measurement.cells[cell].mean)}
        told = {layer: c for layer, c in finite.items() if not meanless(measurement, metric, measurement.cells[c].mean)}
        self.depths, self.undefined, self.meanless = len(known), len(known) - len(finite), len(finite) - len(told)
        self.has_course = len(told) > 1  # the other depths are left out
        self.to_the_end = max(known) in told
        finite = told if self.has_course else known
        self.layers, self.cells = list(finite), list(finite.values())
        self.means = [measurement.cells[cell].mean for cell in self.cells]

    @property
    def samples(self) -> int:
        """How many samples the means are of; within a rank budget fewer than were measured."""
        return min(self.measurement.cells[cell].count for cell in self.cells)

    @property
    def untested(self) -> bool:
        """Whether there is one sample of this metric and more of others."""
        return self.samples == 1 < self.measurement.samples

    def stretch(self, i: int, j: int) -> Stretch:
        """From the i-th to the j-th depth."""
        sign = METRICS[self.metric].sign
        direction = self.direction(i, j)
        heading = math.copysign(1.0, self.means[j] - self.means[i])
        steps = {self.layers[k]: (self.means[k] - self.means[k - 1]) * heading for k in range(i + 1, j + 1)}
        ordered = sorted(steps, key=lambda layer: -steps[layer])
        whole = self.layers[j] - self.layers[i] == j - i  # else a step may be that of several layers
        alone = whole and all(steps[ordered[0]] >= STANDS_OUT * steps[other] for other in ordered[1:2])
        strongest = ordered[0] if alone and ordered else None
        before, after = self.means[i], self.means[j]
        slight = direction != 0 and is_slight(self.metric, before, after)
        back = max((self.means[k] - self.means[m]) * heading for k, m in combinations(range(i, j + 1), 2))
        uneven = back > 0 and back >= LEAST_TURN * (max(self.means) - min(self.means))
        return Stretch(self.layers[i] + 1, self.layers[j], before, after, direction * sign, strongest, slight, uneven)

    def direction(self, i: int, j: int) -> int:
        """+1 where the metric clearly rises from the i-th depth to the j-th, −1 where it clearly falls, else 0."""
        if self._rounding(self.means[i], self.means[j]):
            return 0
        mean, count, p = _tested(self.measurement, [(self.cells[i], self.cells[j])])
        last = len(self.cells) - 1
        if (i, j) == (0, last):
            return _clear(mean, count, p, WHOLE if last > 1 else DOUBT)
        others = last * (last + 1) // 2 - 1
        return _clear(mean, count, max(p, self.joint[i, j]) if self.joint else p * others, DOUBT - WHOLE)

    @cached_property
    def joint(self) -> dict[tuple[int, int], float]:
        """By pair of depths, p among all pairs but the whole curve's; empty where samples are too few or not kept."""
        kept = self.measurement.per_sample
        if kept is None:
            return {}
        values = np.array([kept[cell] for cell in self.cells])  # depths × samples
        values = values[:, np.isfinite(values).all(0)]
        if 2.0 ** (1 - values.shape[1]) > DOUBT - WHOLE:
            return {}
        last = len(values) - 1
        by_factor = METRICS[self.metric].panel != DIRECTION
        factor = np.array([by_factor and bool((row > 0).all()) for row in values])
        logs = np.log(np.where(factor[:, None], values, 1.0))
        pairs = [pair for pair in combinations(range(last + 1), 2) if pair != (0, last)]
        rows = np.array([[k + len(values) * bool(factor[[i, j]].all()) for k in (i, j)] for i, j in pairs])
        scaled = values / (np.abs(values).max() or 1.0)
        return dict(zip(pairs, joint_p(np.concatenate([scaled, logs]), *rows.T).tolist(), strict=True))

    def _rounding(self, before: float, after: float) -> bool:
        """Whether a change may be that of rounding: of tokens that are all alike, HFC/LFC is nothing else."""
        return abs(after - before) <= rounding(self.measurement, self.metric, max(abs(before), abs(after)))


def contributions(measurement: Measurement, metric: str, policy: str, stretch: Stretch) -> dict[str, tuple[float, int]]:
    """By kind of layer, what it added to the metric over a stretch, and its clear direction (+1, −1, or 0).

    The steps of a block's modules add up to the block's, so these add up to the whole change. Each is tested over
    samples at 5 % divided by the number of kinds.
    """
    block = BLOCK_STEPS["residual", measurement.about.model.placement]
    pairs: dict[str, list[tuple[Cell, Cell]]] = {}
    for layer in range(stretch.first, stretch.last + 1):
        for start, end, kind in block:
            before = (
                _input(measurement, layer, metric, policy)
                if start == "pre"
                else Cell(f"blocks.{layer}.{start}", metric, policy)
            )
            pairs.setdefault(kind, []).append((before, Cell(f"blocks.{layer}.{end}", metric, policy)))
    if any(cell not in measurement.cells for found in pairs.values() for pair in found for cell in pair):
        return {}
    return {kind: change(measurement, found, DOUBT / len(pairs)) for kind, found in pairs.items()}


def change(measurement: Measurement, pairs: Sequence[tuple[Cell, Cell]], doubt: float) -> tuple[float, int]:
    """The sum of `after − before` over pairs of cells, a mean over samples, and its clear sign.

    Clear is what Student's test over samples leaves that much doubt of; the sign of one sample is taken as it is.
    """
    mean, count, p = _tested(measurement, pairs)
    return mean, _clear(mean, count, p, doubt)


def _clear(mean: float, count: int, p: float, doubt: float) -> int:
    return int(math.copysign(1, mean)) if (p < doubt or count == 1) and abs(mean) > 0 else 0


def _tested(measurement: Measurement, pairs: Sequence[tuple[Cell, Cell]]) -> tuple[float, int, float]:
    """The sum of `after − before` over pairs of cells, a mean over samples; their number; p of Student's test.

    What has a factor is tested by its logarithm, and p is 1 where the mean does not go the same way. Where samples were
    not kept, the standard errors of all cells are added, which bounds that of the sum however they correlate.
    """
    kept = measurement.per_sample
    if kept is not None:
        ends = np.array([[kept[before], kept[after]] for before, after in pairs])
        ends = ends[..., np.isfinite(ends).all((0, 1))]
        scale = float(np.abs(ends).max(initial=0.0)) or 1.0  # squares of very large values are numbers too
        found = _paired(ends / scale)
        if METRICS[pairs[0][0].metric].panel == DIRECTION or not (ends > 0).all():
            return found.mean * scale, found.pairs, found.p
        by_factor = _paired(np.log(ends))
        return found.mean * scale, found.pairs, by_factor.p if by_factor.mean * found.mean > 0 else 1.0
    cells = [(measurement.cells[before], measurement.cells[after]) for before, after in pairs]
    mean, error = sum(b.mean - a.mean for a, b in cells), sum(a.sem + b.sem for a, b in cells)
    count = min(a.count for a, _ in cells)
    return mean, count, student_p(mean / error, count - 1) if error > 0 else float(mean == 0)


def _paired(ends: npt.NDArray[np.float64]) -> Difference:
    """The test of the sum of `after − before` over pairs; `ends` is (pairs, 2, samples)."""
    change = (ends[:, 1] - ends[:, 0]).sum(0)
    return paired_difference(np.zeros(len(change)), change)


def is_slight(metric: str, before: float, after: float) -> bool:
    """Whether a change is below a tenth; of a cosine, below 0.05 and not half of what is left to 1."""
    low, high = sorted((before, after))
    if METRICS[metric].panel == DIRECTION:
        return high - low < SLIGHT_DIFFERENCE and 1 - high > (1 - low) / 2
    return low > 0 and high < SLIGHT_FACTOR * low


def _turns(means: Sequence[float]) -> list[int]:
    """Both ends, and between them the places where the curve turns; the smallest turns are dropped first."""
    size = max((abs(v) for v in means if math.isfinite(v)), default=0.0) or 1.0
    values = [v / size for v in means]
    rises = [b > a for a, b in pairwise(values) if b != a]
    if not rises or not all(map(math.isfinite, values)):
        return list(dict.fromkeys((0, len(values) - 1)))
    places = [0, *range(1, len(values) - 1), len(values) - 1]
    places = [p for k, p in enumerate(places) if k in (0, len(places) - 1) or _extreme(values, p)]
    least = LEAST_TURN * (max(values) - min(values))
    while len(places) > 2:
        sizes = [_reach(values[a : b + 1]) for a, b in pairwise(places)]
        smallest = min(range(len(sizes)), key=sizes.__getitem__)
        if sizes[smallest] >= least and len(places) - 2 <= MOST_TURNS:
            break
        inner = {k for k in (smallest, smallest + 1) if 0 < k < len(places) - 1}
        places = [p for k, p in enumerate(places) if k not in inner]
    return places


def _reach(values: Sequence[float]) -> float:
    """How far a stretch goes; a small way back before an end of the curve, which has joined it, takes none of it."""
    return max(values) - min(values)


def _extreme(values: Sequence[float], place: int) -> bool:
    """A strict turn; of equal neighbours the first counts."""
    before = values[place] - values[place - 1]
    after = next((values[k] - values[place] for k in range(place + 1, len(values)) if values[k] != values[place]), 0.0)
    return before * after < 0


def _unclear(curve: Curve, places: Sequence[int]) -> set[int] | None:
    """The turns that fall when the first stretch without a clear change joins those around it."""
    found = [curve.direction(i, j) for i, j in pairwise(places)]
    for k, way in enumerate(found):
        if way == 0 and 0 < k < len(found) - 1:
            return {places[k], places[k + 1]}
        if way == 0 and len(found) > 1 and found[k - 1 if k else 1] == 0:
            return {places[k if k else 1]}
    return None


def _input(measurement: Measurement, layer: int, metric: str, policy: str) -> Cell:
    """The stream before a layer; some families show it as the output of the layer before only."""
    last = f"blocks.{layer - 1}.post" if layer else "embed"
    own = Cell(f"blocks.{layer}.pre", metric, policy)
    return own if own in measurement.cells else Cell(last, metric, policy)
