"""The findings in plain words, made from the numbers. Smoothing is described, never judged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unsmooth.analysis.changes import TOGETHER
from unsmooth.analysis.comparison import welch_half_width
from unsmooth.analysis.measurement import Cell, Change
from unsmooth.analysis.pairing import pair
from unsmooth.metrics.moments import Moments
from unsmooth.metrics.registry import METRICS
from unsmooth.page.data import shared_policies
from unsmooth.page.findings_explain import agreement_found, eigenvalues_found, overshoot_found, types_found
from unsmooth.page.verdict import difference, end_cells, ends, leading_metrics, verdict, vote
from unsmooth.page.words import SHARPENS, SMOOTHS, counted, listed, named, number_text, signed_text, within

if TYPE_CHECKING:
    from unsmooth.analysis.subject import Subject


@dataclass(frozen=True)
class Finding:
    """One sentence as HTML (names escaped), the section it is read from, and what to choose in its figure."""

    html: str
    section: str
    view: str = ""


_STREAM = (".pre", ".mid", ".post")
_VIEWS = {"histograms": "after, Σ heads"}  # the figure opens on another count, the paper's
_OUTLIERS_MATTER = 1.5  # a factor between the metric with and without outlier tokens
Subjects = Sequence["Subject"]


def findings(subjects: Subjects) -> list[Finding]:
    """How models differ, where features smooth, where they sharpen, what drives it, and how sure that is."""
    metrics, policy = leading_metrics(subjects), shared_policies(subjects)[0]
    found = [
        ("depth", _order(subjects, metrics[0], policy)),
        ("depth", _direction(subjects, metrics, policy)),
        ("depth", _outliers(subjects, metrics[0], policy)),
        ("steps", _where(subjects, metrics[0], policy)),
        ("steps", _driver(subjects, metrics[0], policy)),
        ("histograms", eigenvalues_found(subjects)),
        ("shares", types_found(subjects)),
        ("exponents", agreement_found(subjects)),
        ("spectra", overshoot_found(subjects)),
        ("provenance", _certainty(subjects)),
    ]
    return [
        Finding(text[0].upper() + text[1:] + ".", section, _VIEWS.get(section, "")) for section, text in found if text
    ]


def _order(subjects: Subjects, metric: str, policy: str) -> str:
    """Models by how far apart their tokens are after the last layer; one model has no order."""
    known = [(subject, ends(subject.measurement, metric, policy)[1]) for subject in subjects]
    ranked = sorted(
        ((s, end) for s, end in known if math.isfinite(end.mean)), key=lambda f: f[1].mean * METRICS[metric].sign
    )
    if len(ranked) < 2:
        return ""
    title = METRICS[metric].title
    (first, far), *between, (last, near) = ranked
    said = f"after the last layer, tokens are farthest apart in {named(first.name)} ({title} {number_text(far.mean)}), "
    said += "".join(f"then {named(subject.name)} ({number_text(end.mean)}), " for subject, end in between)
    said += f"and closest together in {named(last.name)} ({number_text(near.mean)})"
    gap, half = abs(far.mean - near.mean), _margin(first, last, metric, policy)
    if math.isnan(half):
        return said
    sure = "clear of" if gap > half else "no larger than"
    margin = f"95\N{NO-BREAK SPACE}% margin of ±{number_text(half, 2)}"
    return said + f"; the gap between these two, {number_text(gap)}, is {sure} its {margin}"


def _margin(a: Subject, b: Subject, metric: str, policy: str) -> float:
    """Half of the 95 % interval of the gap between two last layers: sample by sample where both saw the same inputs."""
    here, there = (end_cells(subject.measurement, metric, policy)[1] for subject in (a, b))
    left, right = a.measurement, b.measurement
    places = pair(left, right).places
    if places is None or left.per_sample is None or right.per_sample is None:
        return welch_half_width(left.cells[here], right.cells[there])
    return difference(left.per_sample[here][places[0]], right.per_sample[there][places[1]]).half_width


def _direction(subjects: Subjects, metrics: Sequence[str], policy: str) -> str:
    opening = "from the first layer’s input to the last layer’s output, "
    words = {
        "smooths": (SMOOTHS.format("smooths") + " its features", SMOOTHS.format("smooth") + " their features"),
        "sharpens": (SHARPENS.format("sharpens") + " its features", SHARPENS.format("sharpen") + " their features"),
        "steady": (
            "does not clearly change how smooth its features are",
            "do not clearly change how smooth their features are",
        ),
        "mixed": ("moves its metrics in different directions", "move their metrics in different directions"),
    }
    groups: dict[str, list[Subject]] = {}
    for subject in subjects:
        groups.setdefault(verdict(subject.measurement, metrics, policy), []).append(subject)
    if len(subjects) > 1:
        return opening + "; ".join(
            f"{listed([named(s.name) for s in group])} {words[kind][len(group) > 1]}" for kind, group in groups.items()
        )
    (kind,) = groups
    values, doubt = [], ""
    clear: dict[bool, list[str]] = {True: [], False: []}
    for metric in metrics:
        start, end = ends(subjects[0].measurement, metric, policy)
        values.append(f"{METRICS[metric].title} {number_text(start.mean)} → {number_text(end.mean)}")
        clear[vote(subjects[0].measurement, metric, policy) != 0].append(METRICS[metric].title)
    if kind == "steady" and clear[True]:
        doubt = f"; only the change of {listed(clear[True])} is clear"
    elif kind != "steady" and clear[False]:
        doubt = f"; the change of {listed(clear[False])} is not clear"
    return f"{opening}the model {words[kind][0]} ({', '.join(values)}){doubt}"


def _outliers(subjects: Subjects, metric: str, policy: str) -> str:
    """Whether a few tokens of extreme norm make the curve: massive activations can fake or hide smoothing."""
    said = []
    for subject in subjects:
        factor, point = _outlier_factor(subject, metric, policy)
        if abs(math.log(factor)) >= math.log(_OUTLIERS_MATTER):
            said.append(
                f"{number_text(factor)} times what it is without at {point}{within(subject.name, len(subjects))}"
            )
    if not said:
        return ""
    return (
        f"a few tokens of extreme norm carry much of this: with them, {METRICS[metric].title} is {listed(said)} "
        "(switch to no-outliers)"
    )


def _outlier_factor(subject: Subject, metric: str, policy: str) -> tuple[float, str]:
    cells = subject.measurement.cells
    factors = []
    for cell, moments in cells.items():
        other = cells.get(cell._replace(tokens="no-outliers"))
        if other is None or cell.metric != metric or cell.tokens != policy or not cell.point.endswith(_STREAM):
            continue
        if moments.mean > 0 and other.mean > 0 and math.isfinite(moments.mean / other.mean):
            factors.append((moments.mean / other.mean, cell.point))
    return max(factors, key=lambda found: abs(math.log(found[0])), default=(1.0, ""))


def _where(subjects: Subjects, metric: str, policy: str) -> str:
    """The layers with the largest steps in either direction, by the factor of a positive metric."""
    sharp: list[str] = []
    smooth: list[str] = []
    many, counts = len(subjects), []
    for subject in subjects:
        factors = _layer_factors(subject, metric, policy)
        if len(factors) < 2:
            continue
        ordered = sorted(factors, key=lambda found: found[0] * METRICS[metric].sign)
        for said, (factor, layer), sign in ((sharp, ordered[0], -1), (smooth, ordered[-1], 1)):
            if (factor > 1) == (sign * METRICS[metric].sign > 0) and factor != 1:
                title = "" if sharp or smooth else METRICS[metric].title + " "
                said.append(f"layer {layer}{within(subject.name, many)} ({title}×{number_text(factor)})")
        smoothing = sum((factor > 1) == (METRICS[metric].sign > 0) and factor != 1 for factor, _ in factors)
        counts.append(f"{smoothing} of {len(factors)}{within(subject.name, many)}")
    said = [f"{SHARPENS.format('sharpen')} most in {listed(sharp)}"] if sharp else []
    said += [f"{SMOOTHS.format('smooth')} most in {listed(smooth)}"] if smooth else []
    return f"features {'; they '.join(said)}; layers that smooth them: {listed(counts)}" if said else ""


def _layer_factors(subject: Subject, metric: str, policy: str) -> list[tuple[float, int]]:
    cells, factors = subject.measurement.cells, []
    for layer in range(subject.measurement.about.model.layers):
        before, after = (cells.get(Cell(f"blocks.{layer}.{name}", metric, policy)) for name in ("pre", "post"))
        if before is not None and after is not None and before.mean > 0 and after.mean > 0:
            factors.append((after.mean / before.mean, layer))
    return factors


def _driver(subjects: Subjects, metric: str, policy: str) -> str:
    """What attention and MLP do on average, models of one kind of change together."""
    said: list[str] = []
    for kind, who in (("Attention", "attention"), ("MLP", "the MLP"), (TOGETHER, "the sum of attention and MLP")):
        groups: dict[str, list[str]] = {}
        for subject in subjects:
            change = subject.measurement.changes.get(Change("residual", kind, metric, policy))
            if change is not None:
                name = f"{named(subject.name)} " if len(subjects) > 1 else ""
                groups.setdefault(_act(change), []).append(f"{name}({signed_text(change.mean)})")
        acts: list[str] = []
        for act, values in groups.items():
            what = "it" if said or acts else METRICS[metric].title
            acts.append(f"{act} {what} {'in ' if len(subjects) > 1 else ''}{listed(values)}")
        said += [f"{who} {' and '.join(acts)}"] if acts else []
    return f"per layer and on average, {'; '.join(said)}" if said else ""


def _act(change: Moments) -> str:
    low, high = (change.mean if math.isnan(end) else end for end in change.interval)  # one sample has no interval
    if low <= 0 <= high:
        return "does not clearly change"
    return "raises" if change.mean > 0 else "lowers"


def _certainty(subjects: Subjects) -> str:
    counts = sorted({subject.measurement.samples for subject in subjects})
    explained = sorted({s.explanation.inputs for s in subjects if s.explanation is not None})
    samples = f"{' or '.join(map(str, counts[:-1]))} or {counted(counts[-1], 'sample')}" if counts[1:] else ""
    text = f"the measurements rest on {samples or counted(counts[0], 'sample')}"
    if explained:
        text += f" and the explanation on {'it' if counts == [1] else ' or '.join(map(str, explained)) + ' of them'}"
    few = min(counts) < 30
    text += "; so few say how these inputs behave, hardly how others would" if few else ""
    partial = any(subject.measurement.partial for subject in subjects)
    return text + (", and measuring was interrupted" if partial else "")
