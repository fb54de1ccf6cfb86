"""The course of a model in words: where it smooths and sharpens, what made each stretch, what other metrics tell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from unsmooth.analysis.measuring.changes import TOGETHER
from unsmooth.analysis.measuring.measurement import Measurement
from unsmooth.metrics.registry import DISTANCE, METRICS
from unsmooth.page.course import Curve, Stretch, contributions, course, is_slight, ways
from unsmooth.page.rounding import rounding
from unsmooth.page.words.phrases import SHAPES, does, listed, measured_text, shape

MOST_NUMBERS = 3  # in a paragraph
_CREDIT = 0.25  # of what all kinds of layer do in a stretch's direction: what is worth a name
WHO = {
    "Attention": "attention",
    "MLP": "the MLP",
    "LayerNorm": "the normalisation",
    TOGETHER: "the sum of attention and MLP",
}


def course_text(measurement: Measurement, metric: str, policy: str, stretches: Sequence[Stretch]) -> str:
    """The course in words, with the layers where it turns and where it moves most."""
    layers, title = measurement.about.model.layers, METRICS[metric].title
    first, last = stretches[0], stretches[-1]
    curve = Curve(measurement, metric, policy)
    fewer, between = _caveats(curve), _between(curve, first) if len(stretches) == 1 else None
    passed = [first.before, *([] if between is None or fewer else [between]), last.after]
    values = f"({title} {' → '.join(map(measured_text, passed))}{fewer and f'; {fewer}'})"
    if not curve.has_course:
        return f"has no course that can be told {values}"
    if not ways(stretches):
        where = "in its one layer" if layers == 1 else "from its first layer to its last"
        equal = ": up to rounding all tokens of an input are alike" if alike(measurement, metric, policy) else ""
        return f"does not clearly change how smooth its features are {where} {values}{equal}"
    if len(stretches) == 1:
        if layers == 1:
            return f"{does(first.way, first.slight)} its features in its one layer {values}"
        where = "in every layer" if _every(measurement, metric, policy) else "from its first layer to its last"
        return f"{does(first.way, first.slight, uneven=first.uneven)} its features {where} {values}{_most(first)}"
    room = MOST_NUMBERS - sum(_names_a_layer(stretch, layers) for stretch in stretches)
    sizes = sorted(
        (s for s in stretches if s.way and s.first < s.last and _most(s)), key=lambda s: -abs(s.after - s.before)
    )
    told, clauses, what = {id(s) for s in sizes[:room]}, [], "its features"
    for stretch in stretches:
        most = _most(stretch) if id(stretch) in told else ""
        verb = (
            f"{does(stretch.way, stretch.slight, uneven=stretch.uneven)} {what}"
            if stretch.way
            else "shows no clear change"
        )
        what = "them" if stretch.way else what
        clauses.append(f"{verb} {_span(stretch, layers)}{most}")
    whole = f"{clauses[0]}, {', '.join(f'then {clause}' for clause in clauses[1:])}"
    return whole + (fewer and f" ({title}; {fewer})")


def alike(measurement: Measurement, metric: str, policy: str) -> bool:
    """Whether tokens are the same up to rounding at every depth, by a distance between them such as HFC/LFC."""
    row = METRICS[metric]
    if (
        row.panel != DISTANCE
        or row.unit
        or not any((c.metric, c.tokens) == (metric, policy) for c in measurement.cells)
    ):
        return False
    means = Curve(measurement, metric, policy).means
    return all(math.isfinite(mean) and mean <= rounding(measurement, metric, mean) for mean in means)


def _between(curve: Curve, stretch: Stretch) -> float | None:
    """The farthest value of a curve that no test calls clear, where it is beyond both ends by more than is slight."""
    low, high = sorted((stretch.before, stretch.after))
    far = max(curve.means, key=lambda value: max(value - high, low - value))
    if stretch.way or low <= far <= high or not curve.has_course:
        return None
    least = rounding(curve.measurement, curve.metric, max(abs(low), abs(far), abs(high)))
    small = (is_slight(curve.metric, end, far) or abs(far - end) <= least for end in (low, high))
    return None if any(small) else far


def _most(stretch: Stretch) -> str:
    return "" if stretch.strongest is None else f", most in layer {stretch.strongest}"


def _names_a_layer(stretch: Stretch, layers: int) -> bool:
    return stretch.last < layers - 1 or stretch.first == stretch.last


def _span(stretch: Stretch, layers: int) -> str:
    if stretch.first == stretch.last:
        return f"in layer {stretch.first}" + (", the last" if stretch.last == layers - 1 else "")
    return f"through layer {stretch.last}" if stretch.last < layers - 1 else "to the last layer"


def _every(measurement: Measurement, metric: str, policy: str) -> bool:
    """Whether the mean goes the same way in every layer, each of which was measured."""
    means = Curve(measurement, metric, policy).means
    steps = [b - a for a, b in pairwise(means)]
    whole = len(steps) == measurement.about.model.layers
    return whole and (min(steps) > 0 or max(steps) < 0)


def others_text(measurement: Measurement, metrics: Sequence[str], policy: str, leading: Sequence[Stretch]) -> str:
    """Whether the other leading metrics tell the same course; of tokens that are alike they tell rounding."""
    if alike(measurement, metrics[0], policy):
        return ""
    groups: dict[tuple[tuple[tuple[int, bool], ...], bool], list[str]] = {}
    without: list[str] = []
    for metric in metrics[1:]:
        curve = Curve(measurement, metric, policy)
        if not curve.has_course:
            without.append(METRICS[metric].title)
            continue
        found = tuple((stretch.way, stretch.slight) for stretch in course(measurement, metric, policy))
        fewer = _caveats(curve)
        groups.setdefault((found, curve.untested), []).append(METRICS[metric].title + (fewer and f" ({fewer})"))
    said = []
    same = tuple((stretch.way, stretch.slight) for stretch in leading), False
    curve = Curve(measurement, metrics[0], policy)
    if curve.has_course and not curve.untested and (agreeing := groups.pop(same, [])):
        said.append(f"{listed(agreeing)} {'agree' if len(agreeing) > 1 else 'agrees'}")
    said += [f"by {listed(titles)} it {shape(found)}" for (found, _), titles in groups.items()]
    said += [f"{listed(without)} {'have' if len(without) > 1 else 'has'} no course that can be told"] if without else []
    text = "; ".join(said)
    return text[:1].upper() + text[1:]


def _caveats(curve: Curve) -> str:
    """How many samples a metric is of, if fewer than were measured; at how many depths nothing can be told by it."""
    said = [f"not finite at {curve.undefined} of {curve.depths} depths"] if curve.undefined else []
    if curve.meanless:
        said.append(f"the mean token is 0 up to rounding at {curve.meanless} of {curve.depths} depths, left out here")
    if curve.untested:
        said.insert(0, "one sample, not tested")
    elif curve.samples < curve.measurement.samples:
        said.insert(0, f"{curve.samples} samples")
    return "; ".join(said)


def makers_text(measurement: Measurement, metric: str, policy: str, stretches: Sequence[Stretch]) -> str:
    """Which kinds of layer made each clear stretch, and which worked against it."""
    if measurement.about.model.placement.startswith("parallel"):
        together = "Each block adds attention and MLP in one sum, so no metric can be measured between the two"
        return together if ways(stretches) else ""
    told: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = {}
    clear = [stretch for stretch in stretches if stretch.way]
    for stretch in clear:
        makers, against = made_by(measurement, metric, policy, stretch)
        if makers is None:
            return ""
        same = [s for s in clear if s.way == stretch.way]
        order = ("first " if stretch is same[0] else "second ") if len(same) > 1 else ""
        told.setdefault((tuple(makers), tuple(against)), []).append(f"the {order}{SHAPES[stretch.way]}")
    text = "; ".join(_made(wholes, *kinds) for kinds, wholes in told.items())
    return text[:1].upper() + text[1:]


def _made(wholes: Sequence[str], makers: Sequence[str], against: Sequence[str]) -> str:
    """What is said of the stretches that the same kinds of layer made."""
    if not makers:
        return "; ".join(f"no kind of layer clearly makes {whole} alone" for whole in wholes)
    work, them = "work" if len(against) > 1 else "works", "it" if len(wholes) == 1 else "them"
    opposing = f", while {listed([WHO[kind] for kind in against])} {work} against {them}" if against else ""
    come = "comes" if len(wholes) == 1 else "come"
    return f"{listed(wholes)} {come} from {listed([WHO[kind] for kind in makers])}{opposing}"


def made_by(measurement: Measurement, metric: str, policy: str, stretch: Stretch) -> tuple[list[str] | None, list[str]]:
    """Kinds of layer that clearly made a stretch, and that clearly worked against it, each worth a quarter or more.

    None where the points between them were not measured.
    """
    heading = math.copysign(1.0, stretch.after - stretch.before)
    found = contributions(measurement, metric, policy, stretch)
    if not found:
        return None, []
    toward = {kind: size * heading for kind, (size, way) in found.items() if way}
    whole = sum(size for size in toward.values() if size > 0)
    ordered = sorted((kind for kind in toward if kind != TOGETHER), key=lambda kind: -abs(toward[kind]))
    return (
        [kind for kind in ordered if toward[kind] > 0 and toward[kind] >= _CREDIT * whole],
        [kind for kind in ordered if toward[kind] < 0 and -toward[kind] >= _CREDIT * whole],
    )
