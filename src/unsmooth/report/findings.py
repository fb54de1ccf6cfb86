"""The findings in plain words, made from the numbers. Smoothing is described, never judged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

import numpy as np
import torch

from unsmooth.measure.changes import TOGETHER
from unsmooth.measure.comparison import welch_half_width
from unsmooth.measure.measurement import Cell, Change
from unsmooth.measure.moments import Moments
from unsmooth.measure.pairing import pair
from unsmooth.measure.registry import METRICS
from unsmooth.report.page_data import SMOOTHER, shared_policies
from unsmooth.report.verdict import end_cells, ends, leading_metrics, verdict, vote
from unsmooth.report.words import SHARPENS, SMOOTHS, counted, listed, number_text, percent_text, signed_text
from unsmooth.tolerance import is_zero

if TYPE_CHECKING:
    from unsmooth.report.subject import Subject


@dataclass(frozen=True)
class Finding:
    """One sentence as HTML (names escaped) and the section it is read from."""

    html: str
    section: str


_STREAM = (".pre", ".mid", ".post")
_OUTLIERS_MATTER = 1.5  # a factor between the metric with and without outlier tokens
_MANY_ZEROS = 0.05  # of H's eigenvalues: centring makes one of a layer 0, value heads that are shared make many
Subjects = Sequence["Subject"]


def findings(subjects: Subjects) -> list[Finding]:
    """How models differ, where features smooth, where they sharpen, what drives it, and how sure that is."""
    metrics, policy = leading_metrics(subjects), shared_policies(subjects)[0]
    explained = [subject for subject in subjects if subject.explanation is not None]
    found = [
        ("depth", _order(subjects, metrics[0], policy)),
        ("depth", _direction(subjects, metrics, policy)),
        ("depth", _outliers(subjects, metrics[0], policy)),
        ("steps", _where(subjects, metrics[0], policy)),
        ("steps", _driver(subjects, metrics[0], policy)),
        ("histograms", _spectrum(explained, len(subjects))),
        ("shares", _types(explained, len(subjects))),
        ("exponents", _agreement(explained, len(subjects))),
        ("spectra", _overshoot(explained, len(subjects))),
        ("provenance", _certainty(subjects)),
    ]
    return [Finding(text[0].upper() + text[1:] + ".", section) for section, text in found if text]


def _named(subject: Subject) -> str:
    return f"<b>{escape(subject.name)}</b>"


def _within(subject: Subject, count: int) -> str:
    """`in NAME` where there is more than one model."""
    return f" in {_named(subject)}" if count > 1 else ""


def _order(subjects: Subjects, metric: str, policy: str) -> str:
    """Models by how far apart their tokens are after the last layer."""
    if len(subjects) < 2:
        return ""
    known = [(subject, ends(subject.measurement, metric, policy)[1]) for subject in subjects]
    ranked = sorted(
        ((s, end) for s, end in known if math.isfinite(end.mean)), key=lambda f: f[1].mean * SMOOTHER[metric]
    )
    if len(ranked) < 2:
        return ""
    title = METRICS[metric].title
    (first, far), *between, (last, near) = ranked
    said = f"after the last layer, tokens are farthest apart in {_named(first)} ({title} {number_text(far.mean)}), "
    said += "".join(f"then {_named(subject)} ({number_text(end.mean)}), " for subject, end in between)
    said += f"and closest together in {_named(last)} ({number_text(near.mean)})"
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
    differences = left.per_sample[here][places[0]] - right.per_sample[there][places[1]]
    moments = Moments()
    moments.update(torch.from_numpy(differences[np.isfinite(differences)]))
    return moments.half_width


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
            f"{listed([_named(s) for s in group])} {words[kind][len(group) > 1]}" for kind, group in groups.items()
        )
    (kind,) = groups
    values, unclear = [], []
    for metric in metrics:
        start, end = ends(subjects[0].measurement, metric, policy)
        values.append(f"{METRICS[metric].title} {number_text(start.mean)} → {number_text(end.mean)}")
        unclear += [METRICS[metric].title] if vote(subjects[0].measurement, metric, policy) == 0 else []
    doubt = f"; the change of {listed(unclear)} is not clear" if unclear and kind in ("smooths", "sharpens") else ""
    return f"{opening}the model {words[kind][0]} ({', '.join(values)}){doubt}"


def _outliers(subjects: Subjects, metric: str, policy: str) -> str:
    """Whether a few tokens of extreme norm make the curve: massive activations can fake or hide smoothing."""
    said = []
    for subject in subjects:
        factor, point = _outlier_factor(subject, metric, policy)
        if abs(math.log(factor)) >= math.log(_OUTLIERS_MATTER):
            said.append(f"{number_text(factor)} times what it is without at {point}{_within(subject, len(subjects))}")
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
        ordered = sorted(factors, key=lambda found: found[0] * SMOOTHER[metric])
        for said, (factor, layer), sign in ((sharp, ordered[0], -1), (smooth, ordered[-1], 1)):
            if (factor > 1) == (sign * SMOOTHER[metric] > 0) and factor != 1:
                title = "" if sharp or smooth else METRICS[metric].title + " "
                said.append(f"layer {layer}{_within(subject, many)} ({title}×{number_text(factor)})")
        smoothing = sum((factor > 1) == (SMOOTHER[metric] > 0) and factor != 1 for factor, _ in factors)
        counts.append(f"{smoothing} of {len(factors)}{_within(subject, many)}")
    said = [f"{SHARPENS.format('sharpen')} most in {listed(sharp)}"] if sharp else []
    said += [f"{SMOOTHS.format('smooth')} most in {listed(smooth)}"] if smooth else []
    return f"features {'; they '.join(said)}; layers that smooth them: {listed(counts)}" if said else ""


def _layer_factors(subject: Subject, metric: str, policy: str) -> list[tuple[float, int]]:
    cells, factors = subject.measurement.cells, []
    for layer in range(subject.measurement.about["model"]["layers"]):
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
                name = f"{_named(subject)} " if len(subjects) > 1 else ""
                groups.setdefault(_act(change), []).append(f"{name}({signed_text(change.mean)})")
        acts: list[str] = []
        for act, values in groups.items():
            what = "it" if said or acts else METRICS[metric].title
            acts.append(f"{act} {what} {'in ' if len(subjects) > 1 else ''}{listed(values)}")
        said += [f"{who} {' and '.join(acts)}"] if acts else []
    return f"per layer and on average, {'; '.join(said)}" if said else ""


def _act(change: Moments) -> str:
    low, high = change.interval
    if not math.isnan(low) and low <= 0 <= high:
        return "does not clearly change"
    return "raises" if change.mean > 0 else "lowers"


def _spectrum(explained: Subjects, many: int) -> str:
    said = []
    for subject in explained:
        spectra = subject.explanation.spectra if subject.explanation else []
        folded = max(row["folded"] for row in spectra)
        layers = [(v, is_zero(v)) for v in (row["layer_values"] for row in spectra if row["folded"] == folded)]
        count = sum(len(v) for v, _ in layers)
        negative = sum(int(((v.real < 0) & ~zero).sum()) for v, zero in layers) / count
        nothing = sum(int(zero.sum()) for _, zero in layers) / count
        beside = f" ({percent_text(nothing)} are zero)" if nothing >= _MANY_ZEROS else ""
        said.append(percent_text(negative) + beside + _within(subject, many))
    if not said:
        return ""
    opening = "with the normalisation folded in, the share of H’s eigenvalues left of zero, the sharpening side, is "
    return opening + listed(said)


def _types(explained: Subjects, many: int) -> str:
    said = []
    for subject in explained:
        if subject.explanation is None or "paper_kind" not in subject.explanation.head_frame():
            continue
        table = subject.explanation.type_shares("paper_kind").set_index("kind")
        low, high, share = (float(table[name].astype(float)["sharpening"]) for name in ("low", "high", "share"))
        interval = f"95\N{NO-BREAK SPACE}% interval {percent_text(low)} to {percent_text(high)}"
        said.append(f"{percent_text(share)} of cases{_within(subject, many)} ({interval})")
    return f"head by head, as the paper counts, the sharpening type dominates in {listed(said)}" if said else ""


def _agreement(explained: Subjects, many: int) -> str:
    said = []
    for subject in explained:
        found = subject.agreements["exponent"]
        if not found.count:
            continue
        alone = f"the commoner sign alone: {percent_text(found.majority)}"
        said.append(
            f"{percent_text(found.accuracy)} of {counted(found.count, 'case')}{_within(subject, many)} ({alone})"
        )
    return f"the predicted exponent γ has the sign of the measured step in {listed(said)}" if said else ""


def _overshoot(explained: Subjects, many: int) -> str:
    """Why γ may say smoothing where every measured step sharpens."""
    said = []
    for subject in explained:
        over = subject.explanation.overshooting() if subject.explanation else {}
        if over:
            layers = subject.measurement.about["model"]["layers"]
            low = number_text(min(over.values()), 2)
            said.append(f"{len(over)} of {layers} layers{_within(subject, many)} (down to {low})")
    if not said:
        return ""
    opening = "the step s is too long for the strongest negative eigenvalue, s·λ < −2, in "
    return (
        opening
        + f"{listed(said)}: repeated for ever, such a layer turns and enlarges the mean token; one pass need not"
    )


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
