"""Who changed ln HFC/LFC, in words, and what hovering over its figure tells."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from unsmooth.analysis import Attribution
from unsmooth.analysis.attributing.shares import KINDS, NAMES, NEARLY_ALL, parts_of
from unsmooth.analysis.measuring.outliers import WITHOUT, is_padded
from unsmooth.analysis.subject import Subject
from unsmooth.figures.by_part import part_table
from unsmooth.page.encode import numbers
from unsmooth.page.words.carriers import sinks_found
from unsmooth.page.words.phrases import named

FAINT = 0.1  # of the strongest share: a part against it that is not worth a name
LEAST = math.log(1.01)
ALONE = 0.1  # of a part's share: what all others of its layer may have where nothing else happens


def attributed(subjects: Sequence[Subject]) -> list[tuple[int, Subject, Attribution]]:
    """The models whose parts are known."""
    return [(i, subject, subject.attribution) for i, subject in enumerate(subjects) if subject.attribution is not None]


def policies_of(subjects: Sequence[Subject], order: Sequence[str]) -> list[str]:
    """The token policies that all of them were attributed under, in the page's order."""
    found = [attribution.policies for _, _, attribution in attributed(subjects)]
    return [policy for policy in order if all(policy in each for each in found)]


def who_data(attribution: Attribution | None) -> dict[str, Any] | None:
    """What hovering over the figure tells."""
    if attribution is None:
        return None
    columns, _ = part_table(attribution)
    said = {"mean": "mean path", "n 1": NAMES["norm1"], "n 2": NAMES["norm2"]}
    return {
        "columns": [f"head {c}" if c.isdigit() else said.get(c, c) for c in columns],
        "shares": {p: [numbers(row, 4) for row in part_table(attribution, p)[1]] for p in attribution.policies},
    }


def who_found(subject: Subject, policy: str) -> tuple[str, str]:
    """Two sentences: the strongest parts for the tokens that head the page, and what outliers add where some do."""
    attribution = subject.attribution
    if attribution is None or policy not in attribution.policies:
        return "", ""
    said = strongest_found(attribution, policy)
    split = "Split exactly into the single parts of every layer"
    first = f"{split}, HFC/LFC of {named(subject.name)} is {said}" if said else ""
    base = next((p for p in attribution.policies if p != WITHOUT), WITHOUT)
    if policy != WITHOUT or base == WITHOUT or is_padded(subject.measurement):  # padding may be why it heads the page
        return first, ""
    return first, _with_outliers(attribution, base, first)


def _with_outliers(attribution: Attribution, policy: str, told: str) -> str:
    """With every token: the strongest part, how much of it one token has, and what else its layer does.

    `told` is the sentence without the outliers, which may have named that part.
    """
    rows = attribution.frame(policy, full=True)
    (top,) = attribution.strongest(1, policy).to_dict("records")
    (part,), share = parts_of([top]), float(top["mean"])
    if abs(share) < LEAST:
        return ""
    here = rows[rows["layer"] == part.layer]
    most = f"{'raised' if share > 0 else 'lowered'} most by {part.full_name}"
    too = " too" if re.search(rf"{most}(?!\d)", told) else ""
    said = f"Counting every token{too}, it is {most}"
    at = attribution.positions[policy][:, part.layer, KINDS.index(part.kind)]
    place = int(np.abs(at).argmax())
    if part.kind != "head" and at[place] / share >= NEARLY_ALL:
        token = "the first token" if place == 0 else f"the token at position {place}"
        said += f", nearly all of it by what this writes to {token}"
    if float(here["mean"].abs().sum()) - abs(share) < ALONE * abs(share):
        said += "; nothing else of note happens in that layer"
    sinks = sinks_found(attribution.carriers)
    return f"{said}. {sinks}" if sinks else said


def strongest_found(attribution: Attribution, policy: str) -> str:
    """What raises HFC/LFC and what lowers it most, as a predicate."""
    return _strongest(attribution.frame(policy, full=True))


def _strongest(rows: Any) -> str:
    """What raises and what lowers most; of these two the one that is less than a tenth of the other is not named."""
    shares = rows["mean"]
    most = float(shares.abs().max())
    if not most > 0:
        return ""
    if most < LEAST:
        return "changed by no part by as much as 1 %"
    ends = ((shares.idxmax(), "raised", "raises"), (shares.idxmin(), "lowered", "lowers"))
    ordered = sorted(ends, key=lambda end: -abs(shares[end[0]]))
    names = {row: part.full_name for row, part in zip(rows.index, parts_of(rows.to_dict("records")), strict=True)}
    (first, done, _), (second, also, does) = ordered
    weak = (shares[second] > 0) == (shares[first] > 0) or abs(shares[second]) < FAINT * most
    rest = f", and no part {does} it a tenth as much" if weak else f" and {also} most by {names[second]}"
    return f"{done} most by {names[first]}{rest}"
