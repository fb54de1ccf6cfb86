"""The findings in plain words, made from the numbers. Smoothing is described, never judged."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from unsmooth.measure import Measurement
from unsmooth.measure.measurement import Cell, Change
from unsmooth.measure.moments import Moments
from unsmooth.measure.registry import METRICS
from unsmooth.report.page_data import FAMILIES, SMOOTHER, shared_metrics, shared_policies

if TYPE_CHECKING:
    from unsmooth.report.subject import Subject


@dataclass(frozen=True)
class Finding:
    """One sentence as HTML (names escaped) and the section it is read from."""

    html: str
    section: str


_STREAM = (".pre", ".mid", ".post")
_OUTLIERS_MATTER = 1.5  # a factor between the metric with and without outlier tokens
SMOOTHS = '<span class="smooth-word">{}</span>'
SHARPENS = '<span class="sharp-word">{}</span>'


def findings(subjects: Sequence[Subject]) -> list[Finding]:
    """Where features smooth, where they sharpen, what drives it, and how sure that is."""
    metrics, policy = leading_metrics(subjects), shared_policies(subjects)[0]
    found = [
        _join(subjects, lambda s: _direction(s, metrics, policy), "depth", "From the first layer’s input to the last "
              "layer’s output, "),
        _join(subjects, lambda s: _outliers(s, metrics[0], policy), "depth"),
        _join(subjects, lambda s: _where(s, metrics[0], policy), "steps"),
        _join(subjects, lambda s: _driver(s, metrics[0], policy), "steps", "Averaged over layers, "),
        _join(subjects, _spectrum, "histograms", "Once the normalisation is folded in, "),
        _join(subjects, _types, "shares", "Head by head, as the paper counts, the sharpening type dominates "),
        _join(subjects, _agreement, "exponents", "The predicted exponent γ has the sign of the measured step "),
        _certainty(subjects),
    ]  # fmt: skip
    return [finding for finding in found if finding is not None]


def leading_metrics(subjects: Sequence[Subject]) -> list[str]:
    """The first measured metric of each family: HFC/LFC, cosine similarity, effective rank by default."""
    have = shared_metrics(subjects)
    return [next(name for name in names if name in have) for names, _ in FAMILIES if any(n in have for n in names)]


def ends(measurement: Measurement, metric: str, policy: str) -> tuple[Moments, Moments]:
    """The residual stream before the first and after the last layer."""
    points = [cell.point for cell in measurement.cells if cell.metric == metric and cell.tokens == policy]
    first = next((p for p in ("blocks.0.pre", "embed") if p in points), points[0])
    last = f"blocks.{measurement.about['model']['layers'] - 1}.post"
    return (
        measurement.cells[Cell(first, metric, policy)],
        measurement.cells[Cell(last if last in points else points[-1], metric, policy)],
    )


def vote(measurement: Measurement, metric: str, policy: str) -> int:
    """+1 smoother at the end than at the start, −1 sharper, 0 where the 95 % interval of the change holds 0.

    The change of a sample is the sum of what attention and MLP change, so the half-widths of the two intervals,
    added, bound the half-width for the sum whatever their correlation is.
    """
    parts = [measurement.changes.get(Change("residual", kind, metric, policy)) for kind in ("Attention", "MLP")]
    known = [part for part in parts if part is not None]
    if len(known) == 2:
        change, half = sum(part.mean for part in known), sum(_half(part) for part in known)
    else:
        start, end = ends(measurement, metric, policy)
        change, half = end.mean - start.mean, _half(start) + _half(end)
    return 0 if not abs(change) > half else int(math.copysign(1, change)) * SMOOTHER[metric]


def _half(moments: Moments) -> float:
    low, high = moments.interval
    return (high - low) / 2 if math.isfinite(high - low) else 0.0


def verdict(measurement: Measurement, metrics: Sequence[str], policy: str) -> str:
    """`smooths`, `sharpens`, `mixed` (the metrics disagree) or `steady` (no clear change)."""
    votes = {vote(measurement, metric, policy) for metric in metrics} - {0}
    return {frozenset(): "steady", frozenset({1}): "smooths", frozenset({-1}): "sharpens"}.get(
        frozenset(votes), "mixed"
    )


def number_text(value: float, digits: int = 3) -> str:
    """A number for prose.

    >>> number_text(-0.012345), number_text(1234.5)
    ('−0.0123', '1230')
    """
    if not math.isfinite(value):
        return "∞" if value > 0 else "−∞" if value < 0 else "undefined"
    rounded = float(f"{value:.{digits}g}")
    text = f"{rounded:.{digits}g}" if abs(rounded) < 1e-4 and rounded else f"{rounded:.10f}".rstrip("0").rstrip(".")
    return text.replace("-", "−")


def _join(
    subjects: Sequence[Subject], clause: Callable[[Subject], str | None], section: str, opening: str = ""
) -> Finding | None:
    """One sentence about all models, or none where nothing is known."""
    said = []
    for subject in subjects:
        if (text := clause(subject)) is not None:
            name = "the model" if len(subjects) == 1 else f"<b>{escape(subject.name)}</b>"
            said.append(text.format(name=name, within="" if len(subjects) == 1 else f" in {name}"))
    if not said:
        return None
    sentence = opening + "; ".join(said) + "."
    return Finding(sentence[0].upper() + sentence[1:], section)


def _direction(subject: Subject, metrics: Sequence[str], policy: str) -> str:
    measurement = subject.measurement
    values = []
    for metric in metrics:
        start, end = ends(measurement, metric, policy)
        values.append(f"{METRICS[metric].title} {number_text(start.mean)} → {number_text(end.mean)}")
    words = {
        "smooths": SMOOTHS.format("smooths") + " its features",
        "sharpens": SHARPENS.format("sharpens") + " its features",
        "steady": "changes its features’ smoothness by less than the spread of the samples",
        "mixed": "moves its metrics in different directions",
    }
    return "{name} " + words[verdict(measurement, metrics, policy)] + f" ({', '.join(values)})"


def _outliers(subject: Subject, metric: str, policy: str) -> str | None:
    """Whether a few tokens of extreme norm make the curve: massive activations can fake or hide smoothing."""
    cells = subject.measurement.cells
    factors = []
    for cell, moments in cells.items():
        other = cells.get(cell._replace(tokens="no-outliers"))
        if other is None or cell.metric != metric or cell.tokens != policy or not cell.point.endswith(_STREAM):
            continue
        if moments.mean > 0 and other.mean > 0 and math.isfinite(moments.mean / other.mean):
            factors.append((moments.mean / other.mean, cell.point))
    factor, point = max(factors, key=lambda found: abs(math.log(found[0])), default=(1.0, ""))
    if abs(math.log(factor)) < math.log(_OUTLIERS_MATTER):
        return None
    return (
        f"a few tokens of extreme norm carry much of this{{within}}: with them, {METRICS[metric].title} at {point} is "
        f"{number_text(factor)} times what it is without (switch to no-outliers)"
    )


def _where(subject: Subject, metric: str, policy: str) -> str | None:
    """The layers with the largest steps in either direction, by the logarithm of a positive metric."""
    measurement = subject.measurement
    factors = []
    for layer in range(measurement.about["model"]["layers"]):
        before = measurement.cells.get(Cell(f"blocks.{layer}.pre", metric, policy))
        after = measurement.cells.get(Cell(f"blocks.{layer}.post", metric, policy))
        if before is not None and after is not None and before.mean > 0 and after.mean > 0:
            factors.append((after.mean / before.mean, layer))
    if len(factors) < 2:
        return None
    (low, smooth), (high, sharp) = min(factors), max(factors)
    said = []
    if low < 1:
        said.append(f"{SMOOTHS.format('smooths')} most in layer {smooth} ({METRICS[metric].title} ×{number_text(low)})")
    if high > 1:
        said.append(f"{SHARPENS.format('sharpens')} most in layer {sharp} (×{number_text(high)})")
    falling = sum(factor < 1 for factor, _ in factors)
    return "{name} " + " and ".join(said) + f"; {falling} of {len(factors)} layers lower it" if said else None


def _driver(subject: Subject, metric: str, policy: str) -> str | None:
    changes = subject.measurement.changes
    kinds = {
        kind: changes[key]
        for kind in ("Attention", "MLP")
        if (key := Change("residual", kind, metric, policy)) in changes
    }
    if not kinds:
        return None
    title = METRICS[metric].title

    def act(kind: str, m: Moments) -> str:
        low, high = m.interval
        who = "attention" if kind == "Attention" else "the MLP"
        if not math.isnan(low) and low <= 0 <= high:
            return f"{who} does not clearly change it"
        return f"{who} {'raises' if m.mean > 0 else 'lowers'} {title} by {number_text(abs(m.mean))} per layer"

    largest = max(kinds, key=lambda kind: abs(kinds[kind].mean))
    ordered = [largest, *(kind for kind in kinds if kind != largest)]
    return " and ".join(act(kind, kinds[kind]) for kind in ordered) + "{within}"


def _spectrum(subject: Subject) -> str | None:
    if subject.explanation is None:
        return None
    folded = max(row["folded"] for row in subject.explanation.spectra)
    values = [row["layer_values"] for row in subject.explanation.spectra if row["folded"] == folded]
    negative = sum(int((v.real < 0).sum()) for v in values) / sum(len(v) for v in values)
    return f"{negative:.0%} of the eigenvalues of H have a negative real part, the sharpening side{{within}}"


def _types(subject: Subject) -> str | None:
    if subject.explanation is None or "paper_kind" not in subject.explanation.head_frame():
        return None
    table = subject.explanation.type_shares("paper_kind").set_index("kind")
    low, high, share = table.loc["sharpening", ["low", "high", "share"]].astype(float)
    return f"in {share:.0%} of cases{{within}} (95 % interval {low:.0%} to {high:.0%})"


def _agreement(subject: Subject) -> str | None:
    if subject.explanation is None:
        return None
    found = subject.agreements["exponent"]
    gain = found.accuracy - found.majority
    judged = "more often than" if gain > 0.02 else "no more often than" if gain > -0.02 else "less often than"
    alone = f"{judged} the commoner sign alone ({found.majority:.0%})"
    return f"in {found.accuracy:.0%} of {found.count} cases{{within}}, {alone}"


def _certainty(subjects: Sequence[Subject]) -> Finding:
    counts = sorted({subject.measurement.samples for subject in subjects})
    explained = sorted({s.explanation.inputs for s in subjects if s.explanation is not None})
    samples = " or ".join(map(str, counts))
    text = f"The measurements rest on {samples} sample{'s' if counts != [1] else ''}"
    text += f" and the explanation on {' or '.join(map(str, explained))} of them" if explained else ""
    few = min(counts) < 30
    text += "; so few say how these inputs behave, hardly how others would" if few else ""
    partial = any(subject.measurement.partial for subject in subjects)
    return Finding(text + (", and measuring was interrupted." if partial else "."), "provenance")
