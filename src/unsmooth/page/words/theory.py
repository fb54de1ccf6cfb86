"""What the weights and the theory say of one model, in words: eigenvalues, types, exponents, steps too long."""

from __future__ import annotations

from collections.abc import Mapping

from unsmooth.analysis.explaining.explanation import Explanation
from unsmooth.analysis.subject import Subject
from unsmooth.metrics.tolerance import is_zero
from unsmooth.page.words.course import alike
from unsmooth.page.words.phrases import how_many

HARDLY = 0.05  # of the eigenvalues that are not 0
MANY_ZEROS = 0.05  # of H's eigenvalues: centring makes one of a layer 0, value heads that are shared make many
Said = tuple[str, str, Mapping[str, str]]  # a clause, the section it is read from, and what to choose there


def theory_found(subject: Subject) -> list[Said]:
    """The clauses on one model, in the order of their sentence; none where it was not explained."""
    explanation = subject.explanation
    if explanation is None:
        return []
    return [*weights_found(explanation), *_exponents(subject), *_overshoot(subject, explanation)]


def weights_found(explanation: Explanation) -> list[Said]:
    """What the eigenvalues say: of H, and which type dominates."""
    return [*_eigenvalues(explanation), *_types(explanation)]


def _eigenvalues(explanation: Explanation) -> list[Said]:
    """On which side of zero the eigenvalues of H lie, zeros apart."""
    negative, positive, nothing, folded = eigenvalue_shares(explanation)
    if not negative + positive:
        return []
    sharp = negative / (negative + positive)
    whose = "H with normalisation folded in" if folded else "H"
    if 0.4 < sharp <= 0.6:
        text = f"the eigenvalues of {whose} lie on both sides of zero in about equal parts"
    elif sharp > 0.5:
        text = f"{how_many(sharp, 'eigenvalue')} of {whose} are negative, the sharpening side"
    else:
        text = f"{how_many(1 - sharp, 'eigenvalue')} of {whose} are positive, the smoothing side"
    if nothing >= MANY_ZEROS:
        text += " (zeros, of which there are many, apart)"
    elif nothing and sharp in (0, 1):  # "all" must not count the one that centring makes 0
        text += " (zeros apart)"
    text += _one_sided(explanation, sharp)
    return [(text, "histograms", {"folding": "folded" if folded else "raw", "of": "layer"})]


def _one_sided(explanation: Explanation, sharp: float) -> str:
    """Layers that are unlike all of them together: the words for all would be wrong on each of these."""
    shares = [left / (left + right) for left, right, _ in _sides(explanation)[0] if left + right]
    below, above = (sum(found) / len(shares) for found in (
        [share >= 1 - HARDLY for share in shares], [share <= HARDLY for share in shares]))  # fmt: skip
    said = [
        f"in {how_many(part, 'layer')} nearly all are {side}"
        for part, side, usual in ((below, "negative", sharp > 0.6), (above, "positive", sharp <= 0.4))
        if part and not usual
    ]
    return f": {' and '.join(said)}" if said else ""


def eigenvalue_shares(explanation: Explanation) -> tuple[float, float, float, bool]:
    """Shares of eigenvalues left of zero, right of it and at it, over layers; whether normalisation is folded in."""
    layers, folded = _sides(explanation)
    negative, positive, nothing = (sum(column) for column in zip(*layers, strict=True))
    count = negative + positive + nothing or 1
    return negative / count, positive / count, nothing / count, folded


def _sides(explanation: Explanation) -> tuple[list[tuple[int, int, int]], bool]:
    """By layer, how many eigenvalues lie left of zero, right of it and at it; whether normalisation is folded in."""
    folded = max(row["folded"] for row in explanation.spectra)
    found = []
    for row in explanation.spectra:
        if row["folded"] == folded:
            values, zero = row["layer_values"], is_zero(row["layer_values"])
            left, right = (int((side & ~zero).sum()) for side in (values.real < 0, values.real > 0))
            found.append((left, right, len(values) - left - right))
    return found, bool(folded)


def _types(explanation: Explanation) -> list[Said]:
    """How often the sharpening type dominates, as H acts; the figure has the paper's count too."""
    frame = explanation.head_frame()
    if "kind" not in frame or not frame["kind"].notna().any():
        return []
    table = explanation.type_shares("kind").set_index("kind")
    many = how_many(float(table["share"].astype(float)["sharpening"]), "head")
    return [(f"the sharpening type dominates in {many}", "shares", {"count": "acting"})]


def _exponents(subject: Subject) -> list[Said]:
    """Whether γ tells the sign of a step better than guessing would."""
    found, measured = subject.agreements["exponent"], subject.measurement
    if not found.count or alike(measured, "hfc_lfc", measured.about.settings.tokens[0]):  # steps of rounding
        return []
    steps = "attention’s steps"
    if measured.about.model.placement == "post":
        steps += ", each with the norm after it,"
    if found.majority == 1:
        text = f"{steps} all have the same sign, which γ has in {how_many(found.accuracy, 'case')}"
    else:
        better = "not clearly better" if found.accuracy > found.majority else "no better"
        better = "better" if found.lead_low > 0 else better
        text = f"γ tells the sign of {steps} {better} than always guessing the more frequent sign"
    return [(text, "exponents", {})]


def _overshoot(subject: Subject, explanation: Explanation) -> list[Said]:
    """Why γ may say smoothing where every measured step sharpens."""
    over = explanation.overshooting()
    if not over:
        return []
    many = how_many(len(over) / subject.measurement.about.model.layers, "layer")
    return [(f"in {many} the step overshoots, and one pass need not do what γ says", "spectra", {})]
