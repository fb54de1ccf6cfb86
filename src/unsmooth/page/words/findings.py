"""The findings in plain words: one short paragraph per model, how models compare, and what one could do.

Every paragraph has at most three numbers; the figures have the others, and each link sets its figure to what the
sentence speaks of. Smoothing is described, never judged.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Sequence
from html import escape

import numpy as np

from unsmooth.analysis.long_enough import LEFT_OUT
from unsmooth.analysis.measuring.comparison import welch_half_width
from unsmooth.analysis.measuring.extremes import Outliers
from unsmooth.analysis.measuring.measurement import Measurement
from unsmooth.analysis.measuring.outliers import WITHOUT, carried, is_padded, outliers
from unsmooth.analysis.measuring.pairing import pair
from unsmooth.analysis.policies import COUNT_PADDING
from unsmooth.analysis.subject import NOT_EXPLAINED, Subject
from unsmooth.metrics.differences import paired_difference
from unsmooth.metrics.registry import METRICS
from unsmooth.page.course import Curve, course, ends, leading_metrics
from unsmooth.page.data import headed, shared_policies
from unsmooth.page.rounding import meanless
from unsmooth.page.words.advice import advice
from unsmooth.page.words.attribution import who_found
from unsmooth.page.words.carriers import made_where, times_median
from unsmooth.page.words.course import WHO, course_text, makers_text, others_text
from unsmooth.page.words.paragraph import Finding, Link, Part
from unsmooth.page.words.phrases import listed, measured_text, named, samples_said
from unsmooth.page.words.theory import theory_found

FEW, HARDLY_TESTED = 30, 3  # samples; of so few, Student's t must be above 9.9 for the whole curve
NOTABLE = 5.0  # times the median norm: what is worth a word where `no-outliers` was not measured
Subjects = Sequence["Subject"]


def findings(subjects: Subjects) -> list[Finding]:
    """What each model does and what made it, how they compare, how sure that is, and what one could do."""
    subjects, metrics, policies = headed(subjects), leading_metrics(subjects), shared_policies(subjects)
    found = []
    for index, subject in enumerate(subjects):
        found.append(Finding("model", _model(subject, index, metrics, policies[0])))
        found += [Finding("refused", (f"{named(subject.name)} was {escape(why)}.",)) for why in refused(subject)]
        if said := _outliers(subject, metrics[0], policies):
            found.append(Finding("outliers", said))
        if said := _who(subject, policies[0]):
            found.append(Finding("who", said))
    if said := _comparison(subjects, metrics[0], policies[0]):
        found.append(Finding("comparison", said))
    if certainty := _certainty(subjects):
        found.append(Finding("certainty", (certainty, Link("provenance"))))
    return [*found, Finding("advice", (advice(subjects, metrics, policies),))]


def _model(subject: Subject, index: int, metrics: Sequence[str], policy: str) -> tuple[Part, ...]:
    measurement, metric = subject.measurement, metrics[0]
    stretches = course(measurement, metric, policy)
    parts: list[Part] = [
        f"{named(subject.name)} {course_text(measurement, metric, policy, stretches)}",
        Link("depth", {"tokens": policy, "metric": metric}),
        ".",
    ]
    if others := others_text(measurement, metrics, policy, stretches):
        parts.append(f" {others}.")
    if made := makers_text(measurement, metric, policy, stretches):
        chosen = {"tokens": policy, "metric": metric, "reading": "residual", "model": str(index)}
        parts += [f" {made}", Link("steps", chosen), "."]
    clauses = theory_found(subject)
    for number, (text, section, view) in enumerate(clauses):
        start = f" {text[0].upper()}{text[1:]}" if number == 0 else f"; {text}"
        parts += [start, Link(section, view)]
    return (*parts, ".") if clauses else tuple(parts)


def refused(subject: Subject) -> list[str]:
    """What a page usually has and this model or its features did not allow, with the reason."""
    return [note for note in subject.measurement.notes if note.startswith((NOT_EXPLAINED, "not attributed: "))]


def _who(subject: Subject, policy: str) -> tuple[Part, ...]:
    """Which parts did the most, for the tokens that head the page; and with outliers, where they are left out."""
    found = subject.attribution
    shares = found.under(policy) if found is not None and policy in found.policies else None
    ends_at = () if shares is None else (shares.start.mean, shares.end.mean)  # of ln HFC/LFC
    if any(meanless(subject.measurement, "hfc_lfc", math.exp(end)) for end in ends_at):
        return ()  # what stands in it would be the shares of rounding
    first, second = who_found(subject, policy)
    link = Link("who", {"tokens": policy})
    parts: list[Part] = [first, link, "."] if first else []
    return tuple(parts + ([f" {second}."] if second else []))


def _outliers(subject: Subject, metric: str, policies: Sequence[str]) -> tuple[Part, ...]:
    """The tokens of extreme norm in a sentence of their own: which, what made them, how long, what they carry."""
    measurement = subject.measurement
    base = next((policy for policy in policies if policy != WITHOUT), WITHOUT)
    metrics = carried(measurement, base)
    found = outliers(measurement)
    measured = WITHOUT in measurement.about.settings.tokens
    mixed = policies[0] == WITHOUT and base in COUNT_PADDING and is_padded(measurement)
    known = measured and not mixed  # else a policy that counts padding says nothing of what outliers carry
    if not metrics and (known or found is None or abs(math.log(found.ratio)) < math.log(NOTABLE)):
        return ()
    opening = f"In {named(subject.name)} {_outlier_text(found)}."
    if mixed:
        return (f"{opening} What is said here leaves such tokens and padding out.",)
    if not metrics:
        return (f"{opening} What it carries is not known, as tokens without outliers were not measured.",)
    return (
        f"{opening} Such tokens carry {_carried_text(metrics, carried(measurement, base, sums=False))}, so what is "
        "said here leaves them out",
        Link("depth", {"tokens": base, "metric": next(iter(metrics))}, "(with them: {})"),
        ".",
    )


def _carried_text(metrics: Iterable[str], after: Container[str]) -> str:
    """What outliers carry anywhere, and what of it only before a norm of the stream, not `after` it."""
    titles: dict[bool, list[str]] = {True: [], False: []}
    for name in metrics:
        titles[name in after].append(METRICS[name].title)
    if not titles[False]:
        return listed(titles[True])
    passing = f"{listed(titles[False])} before the norms"
    return f"{listed(titles[True])}, and {passing} only" if titles[True] else f"{passing} and nothing after them"


def _outlier_text(found: Outliers | None) -> str:
    if found is None:
        return "a few tokens have an extreme norm (the file does not say which)"
    whose = "of each sample" if found.in_all else "of some samples"
    if found.position is not None:
        token = "the first token" if found.position == 0 else f"the token at position {found.position}"
        token += " of every sample" if found.everywhere else " of most samples"
        token += " is one of several outliers" if found.several else " is an outlier"
    elif found.several:
        token = f"several tokens {whose} are outliers"
    else:
        token = f"one token {whose}{', not always at the same position,' if found.in_all else ''} is an outlier"
    its = "its norm" if found.position is not None or not found.several else "the norm of the farthest"
    most = "" if found.in_all else "up to " if found.ratio > 1 else "down to "
    size = f"{most}{times_median(found.ratio)}"
    if found.layer is None:
        return f"{token}: before the first layer already {its} is {size}"
    brings = "brings" if found.ratio > 1 else "shrinks"
    to = "to " if found.in_all or found.ratio > 1 else ""  # down to
    return f"{token}: {WHO[found.maker]} of layer {found.layer} {brings} {its} {to}{size}{made_where(found)}"


def _comparison(subjects: Subjects, metric: str, policy: str) -> tuple[Part, ...]:
    """Models by how far apart their tokens are after the last layer; one model has no order."""
    told = [subject for subject in subjects if Curve(subject.measurement, metric, policy).to_the_end]
    known = [(subject, ends(subject.measurement, metric, policy)[1].mean) for subject in told]
    ranked = sorted(known, key=lambda f: f[1] * METRICS[metric].sign)
    if len(ranked) < 2:
        return ()
    (first, far), *between, (last, near) = ranked
    half = margin(first, last, metric, policy)
    title = METRICS[metric].title
    if far == near:
        names = listed([named(subject.name) for subject, _ in ranked])
        said = f"After the last layer tokens are equally far apart in {names} ({title} {measured_text(far)})"
    elif abs(far - near) <= half:
        said = "After the last layer it is not clear in which model tokens are farther apart: "
        low, high = (
            f"{measured_text(value)} in {named(name)}" for value, name in ((far, first.name), (near, last.name))
        )
        said += f"{title} is {f'from {low} to {high}' if between else f'{low} and {high}'} (the 95 % interval of this "
        said += "gap over samples includes zero)"
    else:
        said = f"After the last layer tokens are farthest apart in {named(first.name)} ({title} {measured_text(far)})"
        said += "".join(f", then in {named(subject.name)}" for subject, _ in between)
        said += f" and closest together in {named(last.name)} ({measured_text(near)})"
    if abs(far - near) > half:
        said += f"; the gap between {'first and last' if between else 'these two'} is clear (its 95 % interval over "
        said += "samples leaves out zero)"
    return (said, Link("depth", {"tokens": policy, "metric": metric}), ".")


def margin(a: Subject, b: Subject, metric: str, policy: str) -> float:
    """Half of the 95 % interval of the gap between two last layers: sample by sample where both saw the same inputs."""
    left, right = a.measurement, b.measurement
    here, there = (Curve(m, metric, policy).cells[-1] for m in (left, right))
    places = pair(left, right).places
    if places is None or left.per_sample is None or right.per_sample is None:
        return welch_half_width(left.cells[here], right.cells[there])
    first, second = left.per_sample[here][places[0]], right.per_sample[there][places[1]]
    both = np.isfinite(first) & np.isfinite(second)  # within a rank budget not every sample has a spectrum
    found = paired_difference(first[both], second[both])
    return (found.high - found.low) / 2


def _certainty(subjects: Subjects) -> str:
    fewest = min(subjects, key=lambda subject: subject.measurement.samples).measurement
    counts = sorted({subject.measurement.samples for subject in subjects})
    partial = any(subject.measurement.partial for subject in subjects)
    said = []
    if counts == [1]:
        said.append("All of this is one sample: nothing could be tested, and another input may do otherwise")
    elif counts[0] < FEW:
        text = f"With {samples_said(fewest)}, treat this as a description of these inputs"
        if 1 < counts[0] <= HARDLY_TESTED:
            text += ": only a change that is almost the same in each of them is called clear"
        said.append(text)
    if counts != [1] and any(subject.measurement.per_sample is None for subject in subjects):
        said.append("Where values were not kept for each sample, only large changes can be told from chance")
    for subject in subjects:
        whose = f" ({named(subject.name)})" if len(subjects) > 1 else ""
        notes = [note for note in subject.measurement.notes if note.startswith(LEFT_OUT)]
        said += [f"{note[0].upper()}{escape(note[1:])}{whose}" for note in notes]
        said += [f"{text}{whose}" for text in _repeated(subject.measurement)]
    if partial:
        said.append("Measuring was interrupted before the end of the data")
    return "".join(f"{text}. " for text in said).rstrip()


def _repeated(measurement: Measurement) -> list[str]:
    """That some samples are the same input, which a test takes for new evidence."""
    keys = [] if measurement.per_sample is None else measurement.per_sample.keys.tolist()
    if (different := len({*keys})) == len(keys):
        return []
    if different == 1:
        return [f"All {len(keys)} samples are the same input, so nothing here was tested against others"]
    return [f"Only {different} of {len(keys)} samples are different inputs, so less is clear than their number says"]
