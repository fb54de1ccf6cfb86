"""The findings in plain words: one short paragraph per model, how models compare, and what one could do.

Every paragraph has at most three numbers (`MOST_NUMBERS`); the figures have the others, and each link sets its figure
to what the sentence speaks of. Smoothing is described, never judged.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np

from unsmooth.analysis.changes import TOGETHER
from unsmooth.analysis.comparison import welch_half_width
from unsmooth.analysis.pairing import pair
from unsmooth.metrics.differences import paired_difference
from unsmooth.metrics.registry import METRICS
from unsmooth.page.course import Curve, Stretch, contributions, course, ends, leading_metrics, ways
from unsmooth.page.data import shared_policies
from unsmooth.page.glossary import linked
from unsmooth.page.outliers import NOTABLE, WITHOUT, Outliers, carried, outliers
from unsmooth.page.theory_words import theory_found
from unsmooth.page.who import who_found
from unsmooth.page.words import DOES, SHAPES, listed, named, number_text, samples_said, shape

if TYPE_CHECKING:
    from unsmooth.analysis.measurement import Measurement
    from unsmooth.analysis.subject import Subject

MOST_NUMBERS = 3
FEW = 30  # samples
_CREDIT = 0.25  # of what all kinds of layer do in a stretch's direction: what is worth a name
_WHO = {
    "Attention": "attention",
    "MLP": "the MLP",
    "LayerNorm": "the normalisation",
    TOGETHER: "the sum of attention and MLP",
}
Subjects = Sequence["Subject"]


@dataclass(frozen=True)
class Link:
    """To a section of the page, whose switches it sets to what the sentence speaks of."""

    section: str
    view: Mapping[str, str] = field(default_factory=dict)
    label: str = "{}"  # of which the figure's name is a part


Part = str | Link


@dataclass(frozen=True)
class Finding:
    """One paragraph: pieces of HTML (names escaped), and links to the figures that it is read from."""

    about: Literal["model", "outliers", "who", "comparison", "certainty", "advice"]
    parts: tuple[Part, ...]

    def html(self, figures: Mapping[str, str] | None = None) -> str:
        """The paragraph with its terms and figures linked; `figures` names the sections that the page has."""
        return "".join(_link(part, figures or {}) if isinstance(part, Link) else linked(part) for part in self.parts)


def _link(link: Link, figures: Mapping[str, str]) -> str:
    if link.section not in figures:
        return ""
    view = f' data-view="{escape(json.dumps(link.view, ensure_ascii=False))}"' if link.view else ""
    return f' <a class="figure-link" href="#{link.section}"{view}>{link.label.format(figures[link.section])}</a>'


def findings(subjects: Subjects) -> list[Finding]:
    """What each model does and what made it, how they compare, how sure that is, and what one could do."""
    metrics, policies = leading_metrics(subjects), shared_policies(subjects)
    found = []
    for index, subject in enumerate(subjects):
        found.append(Finding("model", _model(subject, index, metrics, policies[0])))
        if said := _outliers(subject, metrics[0], policies):
            found.append(Finding("outliers", said))
        if said := _who(subject, policies[0]):
            found.append(Finding("who", said))
    if said := _comparison(subjects, metrics[0], policies[0]):
        found.append(Finding("comparison", said))
    if certainty := _certainty(subjects):
        found.append(Finding("certainty", (certainty, Link("provenance"))))
    return [*found, Finding("advice", (_advice(subjects, metrics, policies),))]


def _model(subject: Subject, index: int, metrics: Sequence[str], policy: str) -> tuple[Part, ...]:
    measurement, metric = subject.measurement, metrics[0]
    stretches = course(measurement, metric, policy)
    parts: list[Part] = [
        f"{named(subject.name)} {_course_text(measurement, metric, policy, stretches)}",
        Link("depth", {"tokens": policy, "metric": metric}),
        ".",
    ]
    if others := _others(measurement, metrics, policy, tuple(stretch.way for stretch in stretches)):
        parts.append(f" {others}.")
    if made := _made(measurement, metric, policy, stretches):
        chosen = {"tokens": policy, "metric": metric, "reading": "residual", "model": str(index)}
        parts += [f" {made}", Link("steps", chosen), "."]
    clauses = theory_found(subject)
    for number, (text, section, view) in enumerate(clauses):
        start = f" {text[0].upper()}{text[1:]}" if number == 0 else f"; {text}"
        parts += [start, Link(section, view)]
    return (*parts, ".") if clauses else tuple(parts)


def _course_text(measurement: Measurement, metric: str, policy: str, stretches: Sequence[Stretch]) -> str:
    """The course in words, with the layers where it turns and where it moves most."""
    layers, title = measurement.about.model.layers, METRICS[metric].title
    first, last = stretches[0], stretches[-1]
    values = f"({title} {number_text(first.before)} → {number_text(last.after)})"
    if not ways(stretches):
        where = "in its one layer" if layers == 1 else "from its first layer to its last"
        return f"does not clearly change how smooth its features are {where} {values}"
    if len(stretches) == 1:
        if layers == 1:
            return f"{DOES[first.way]} its features in its one layer {values}"
        where = "in every layer" if _every(measurement, metric, policy) else "from its first layer to its last"
        return f"{DOES[first.way]} its features {where} {values}{_most(first)}"
    room = MOST_NUMBERS - sum(_names_a_layer(stretch, layers) for stretch in stretches)
    sizes = sorted(
        (s for s in stretches if s.way and s.first < s.last and _most(s)), key=lambda s: -abs(s.after - s.before)
    )
    told, clauses, what = {id(s) for s in sizes[:room]}, [], "its features"
    for stretch in stretches:
        most = _most(stretch) if id(stretch) in told else ""
        verb = f"{DOES[stretch.way]} {what}" if stretch.way else "shows no clear change"
        what = "them" if stretch.way else what
        clauses.append(f"{verb} {_span(stretch, layers)}{most}")
    return f"{clauses[0]}, {', '.join(f'then {clause}' for clause in clauses[1:])}"


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


def _others(measurement: Measurement, metrics: Sequence[str], policy: str, leading: tuple[int, ...]) -> str:
    """Whether the other leading metrics tell the same course."""
    groups: dict[tuple[int, ...], list[str]] = {}
    for metric in metrics[1:]:
        found = tuple(stretch.way for stretch in course(measurement, metric, policy))
        groups.setdefault(found, []).append(METRICS[metric].title)
    said = []
    if agreeing := groups.pop(leading, []):
        said.append(f"{listed(agreeing)} {'agree' if len(agreeing) > 1 else 'agrees'}")
    said += [f"by {listed(titles)} it {shape(told)}" for told, titles in groups.items()]
    text = "; ".join(said)
    return text[:1].upper() + text[1:]


def _made(measurement: Measurement, metric: str, policy: str, stretches: Sequence[Stretch]) -> str:
    """Which kinds of layer made each clear stretch, and which worked against it."""
    if measurement.about.model.placement.startswith("parallel"):
        together = "each block adds attention and MLP in one sum, so that the two cannot be told apart here"
        return together[0].upper() + together[1:] if ways(stretches) else ""
    said = []
    clear = [stretch for stretch in stretches if stretch.way]
    for stretch in clear:
        makers, against = made_by(measurement, metric, policy, stretch)
        if makers is None:
            return ""
        same = [s for s in clear if s.way == stretch.way]
        order = ("first " if stretch is same[0] else "second ") if len(same) > 1 else ""
        work = "work" if len(against) > 1 else "works"
        opposing = f", while {listed([_WHO[kind] for kind in against])} {work} against it" if against else ""
        whole = f"the {order}{SHAPES[stretch.way]}"
        if makers:
            said.append(f"{whole} comes from {listed([_WHO[kind] for kind in makers])}{opposing}")
        else:
            said.append(f"no kind of layer clearly makes {whole} alone")
    text = "; ".join(said)
    return text[:1].upper() + text[1:]


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


def _who(subject: Subject, policy: str) -> tuple[Part, ...]:
    """Which parts did the most, for the tokens that head the page; and with outliers, where they are left out."""
    first, second = who_found(subject, policy)
    link = Link("who", {"tokens": policy})
    parts: list[Part] = [first, link, "."] if first else []
    return tuple(parts + ([f" {second}."] if second else []))


def _outliers(subject: Subject, metric: str, policies: Sequence[str]) -> tuple[Part, ...]:
    """The tokens of extreme norm in a sentence of their own: which, what made them, how long, what they carry."""
    measurement = subject.measurement
    base = next((policy for policy in policies if policy != WITHOUT), WITHOUT)
    metrics = carried(measurement, base)
    found = outliers(measurement, next(iter(metrics.values()), None))
    measured = WITHOUT in measurement.about.settings.tokens
    if not metrics and (measured or found is None or abs(math.log(found.ratio)) < math.log(NOTABLE)):
        return ()
    opening = f"In {named(subject.name)} {_outlier_text(found)}."
    if not metrics:
        return (f"{opening} What it carries is not known, as tokens without outliers were not measured.",)
    titles = listed([METRICS[name].title for name in metrics])
    return (
        f"{opening} Such tokens carry {titles}, so what is said here leaves them out",
        Link("depth", {"tokens": base, "metric": next(iter(metrics))}, "(with them: {})"),
        ".",
    )


def _outlier_text(found: Outliers | None) -> str:
    if found is None:
        return "a few tokens have an extreme norm (the file does not say which)"
    if found.position is None:
        token = "one token of each sample, not always at the same position,"
    else:
        token = "the first token" if found.position == 0 else f"the token at position {found.position}"
        token += " of every sample" if found.everywhere else " of most samples"
    size = f"{number_text(found.ratio, 2)} times the median"
    if found.layer is None:
        return f"{token} is an outlier: before the first layer already its norm is {size}"
    brings = "brings its norm to" if found.ratio > 1 else "shrinks its norm to"
    return f"{token} is an outlier: {_WHO[found.maker]} of layer {found.layer} {brings} {size}"


def _comparison(subjects: Subjects, metric: str, policy: str) -> tuple[Part, ...]:
    """Models by how far apart their tokens are after the last layer; one model has no order."""
    known = [(subject, ends(subject.measurement, metric, policy)[1].mean) for subject in subjects]
    ranked = sorted((f for f in known if math.isfinite(f[1])), key=lambda f: f[1] * METRICS[metric].sign)
    if len(ranked) < 2:
        return ()
    (first, far), *between, (last, near) = ranked
    said = f"After the last layer tokens are farthest apart in {named(first.name)} "
    said += f"({METRICS[metric].title} {number_text(far)})"
    said += "".join(f", then in {named(subject.name)}" for subject, _ in between)
    said += f" and closest together in {named(last.name)} ({number_text(near)})"
    half = margin(first, last, metric, policy)
    if not math.isnan(half):
        clear = abs(far - near) > half
        said += f"; the gap between {'first and last' if between else 'these two'} is "
        said += (
            "clear (its 95 % interval over samples leaves out zero)"
            if clear
            else ("not clear (its 95 % interval over samples includes zero)")
        )
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
        said.append(f"With {samples_said(fewest)}, treat this as a description of these inputs")
    if counts != [1] and any(subject.measurement.per_sample is None for subject in subjects):
        said.append("Where values were not kept for each sample, only large changes can be told from chance")
    if partial:
        said.append("Measuring was interrupted before the end of the data")
    return "".join(f"{text}. " for text in said).rstrip()


def _advice(subjects: Subjects, metrics: Sequence[str], policies: Sequence[str]) -> str:
    """What one could do about what was found; to change nothing is always one of the choices."""
    metric = metrics[0]
    found = [
        (subject.measurement, stretch)
        for subject in subjects
        for stretch in course(subject.measurement, metric, policies[0])
    ]
    smoothing = [(measurement, stretch) for measurement, stretch in found if stretch.way > 0]
    makers = {
        kind
        for measurement, stretch in smoothing
        for kind in made_by(measurement, metric, policies[0], stretch)[0] or ()
    }
    base = next((policy for policy in policies if policy != WITHOUT), WITHOUT)
    if smoothing and (not makers or makers & {"Attention", TOGETHER}):
        said = (
            "What one could do: smoothing is no fault in itself; where tokens must stay apart, train with "
            '<code>unsmooth.reparametrize(model, "sharpening")</code>, which keeps H’s eigenvalues from being '
            "positive, or with a published remedy (<code>unsmooth.apply_fix</code>)"
        )
    elif smoothing:
        said = (
            f"What one could do: smoothing is no fault in itself, and here {listed([_WHO[k] for k in sorted(makers)])} "
            "makes it, which no control of H reaches; look at those weights first"
        )
    elif any(ways(course(s.measurement, other, policies[0])).count(1) for s in subjects for other in metrics[1:]):
        said = (
            "What one could do: the metrics disagree, so decide first which of them the task needs; the words below "
            "say what each of them counts"
        )
    elif any(stretch.way < 0 for _, stretch in found):
        said = (
            "What one could do: nothing has to be done; where tokens should come closer together, train with "
            '<code>unsmooth.reparametrize(model, "smoothing")</code>'
        )
    else:
        said = "What one could do: measure more samples, which would show smaller changes"
    if any(carried(subject.measurement, base) for subject in subjects):
        said += "; and leave tokens of extreme norm out before averaging features"
    return f"{said}."
