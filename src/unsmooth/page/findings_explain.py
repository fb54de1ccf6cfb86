"""Findings from the weights and what theory says of them: eigenvalues, types, exponents, steps that are too long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from unsmooth.metrics.tolerance import is_zero
from unsmooth.page.words import counted, listed, number_text, percent_text, within

if TYPE_CHECKING:
    from unsmooth.analysis.explanation import Explanation
    from unsmooth.analysis.subject import Subject

_MANY_ZEROS = 0.05  # of H's eigenvalues: centring makes one of a layer 0, value heads that are shared make many
_COUNTS = {"kind": "as H acts", "paper_kind": "as the paper counts"}
Subjects = Sequence["Subject"]


def eigenvalues_found(subjects: Subjects) -> str:
    """The share left of zero, and of zeros where they are many."""
    said = []
    for subject, explanation in _explained(subjects):
        folded = max(row["folded"] for row in explanation.spectra)
        found = [row["layer_values"] for row in explanation.spectra if row["folded"] == folded]
        layers = [(v, is_zero(v)) for v in found]
        count = sum(len(v) for v, _ in layers)
        negative = sum(int(((v.real < 0) & ~zero).sum()) for v, zero in layers) / count
        nothing = sum(int(zero.sum()) for _, zero in layers) / count
        beside = f" ({percent_text(nothing)} are zero)" if nothing >= _MANY_ZEROS else ""
        said.append(percent_text(negative) + beside + within(subject.name, len(subjects)))
    if not said:
        return ""
    return f"of the eigenvalues of H as it acts, the share left of zero, the sharpening side, is {listed(said)}"


def types_found(subjects: Subjects) -> str:
    """How often the sharpening type dominates, by both counts; once where they say the same."""
    counts: dict[str, list[str]] = {}
    for column, how in _COUNTS.items():
        shares = [
            _share(explanation, column) + within(subject.name, len(subjects))
            for subject, explanation in _explained(subjects)
            if column in explanation.head_frame()
        ]
        if shares:
            counts.setdefault(listed(shares), []).append(how)
    said = [f"in {shares} {' and '.join(how)}" for shares, how in counts.items()]
    return f"head by head, the sharpening type dominates {' and '.join(said)}" if said else ""


def _share(explanation: Explanation, column: str) -> str:
    table = explanation.type_shares(column).set_index("kind")
    low, high, share = (float(table[name].astype(float)["sharpening"]) for name in ("low", "high", "share"))
    interval = f"95\N{NO-BREAK SPACE}% interval {percent_text(low)} to {percent_text(high)}"
    return f"{percent_text(share)} of cases ({interval})"


def agreement_found(subjects: Subjects) -> str:
    """How often γ has the sign of the step, beside what guessing would score."""
    said = []
    for subject, _ in _explained(subjects):
        found = subject.agreements["exponent"]
        if not found.count:
            continue
        cases = f"{percent_text(found.accuracy)} of {counted(found.count, 'case')}{within(subject.name, len(subjects))}"
        said.append(f"{cases} (the commoner sign alone: {percent_text(found.majority)})")
    return f"the predicted exponent γ has the sign of the measured step in {listed(said)}" if said else ""


def overshoot_found(subjects: Subjects) -> str:
    """Why γ may say smoothing where every measured step sharpens."""
    said = []
    for subject, explanation in _explained(subjects):
        over = explanation.overshooting()
        if over:
            layers = subject.measurement.about.model.layers
            low = number_text(min(over.values()), 2)
            said.append(f"{len(over)} of {layers} layers{within(subject.name, len(subjects))} (down to {low})")
    if not said:
        return ""
    opening = "the step s is too long for the strongest negative eigenvalue, s·λ < −2, in "
    return (
        opening
        + f"{listed(said)}: repeated for ever, such a layer turns and enlarges the mean token; one pass need not"
    )


def _explained(subjects: Subjects) -> list[tuple[Subject, Explanation]]:
    return [(subject, subject.explanation) for subject in subjects if subject.explanation is not None]
