"""What the other variants do: forms of H, starts of ψ, layers, published fixes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from unsmooth.control.fixes import FIXES
from unsmooth.control.modes import PLAIN
from unsmooth.control.variant import STANDARD_DEVIATION, Variant
from unsmooth.figures.text import listed
from unsmooth.metrics.differences import Comparison, compare_seeds, one_family, p_text
from unsmooth.metrics.registry import METRICS
from unsmooth.paper.evidence import TEN, Evidence, Metric, is_bounded, last, points
from unsmooth.paper.item import Table, Value
from unsmooth.paper.questions import Answer, question
from unsmooth.paper.records import Summary, with_start

MORE = "the same runs in the paper's recipe (`unsmooth train --list study --data PATH`), more seeds, another data set"
# What each fix's own paper says that it changes in the features of the last layers, and whether that goes up.
MEANT: dict[str, tuple[Metric, bool]] = {
    "attnscale": ("hfc_lfc", True),
    "featscale": ("hfc_lfc", True),
    "contranorm": ("effective_rank", True),
    "neutreno": ("cosine_similarity", False),
    "gfsa": ("cosine_similarity", False),
    "centered": ("effective_rank", True),
}
Broke = Callable[[dict[str, Any]], bool]


@question(
    "Which form of H: symmetric (poster), V Λ V⁻¹ (section 4) or split (footnote 2)?", "summary, question 9",
    "variants", MORE,
)  # fmt: skip
def forms(e: Evidence) -> Answer | None:
    """What V's freedom costs and brings."""
    names = [f"{sign}{form}" for sign in ("sharpening", "smoothing") for form in ("", "-eigen", "-split")]
    return against_plain(e, lambda _: names, lambda run: run.get("variant") in names and run.get("std") is None)


@question(
    "How should ψ start? (the paper: a standard deviation of 1 is unstable, 0.1 is not)", "paper, appendix A",
    "variants", MORE,
)  # fmt: skip
def initialisation(e: Evidence) -> Answer | None:
    """Each form with other standard deviations of ψ at the start, against its own."""
    return _together(e, [_starts(each) for each in e.recipes], lambda run: run.get("std") is not None)


@question("In how many layers, and in which, should one sharpen?", "summary, question 2", "variants", MORE)
def layers(e: Evidence) -> Answer | None:
    """Sharpening in some layers, and both modes in one model."""
    return against_plain(
        e,
        lambda each: sorted({"sharpening", *(r.variant for r in each.runs() if "@" in r.variant)}, key=_in_order),
        lambda run: "@" in str(run.get("variant")),
        least=2,
    )


@question("Do the fixes of other papers change what their papers say they change?", "ours", "variants", MORE)
def fixes(e: Evidence) -> Answer | None:
    """Accuracy with each published fix, beside sharpening's, and the metric that its own paper means to change."""

    def names(each: Evidence) -> list[str]:
        return [*FIXES, "sharpening"] if any(r.variant in FIXES for r in each.runs()) else []

    return against_plain(
        e, names, lambda run: run.get("variant") in FIXES, about=_as_meant,
        metrics=("hfc_lfc", "cosine_similarity", "effective_rank"),
    )  # fmt: skip


@dataclass(frozen=True)
class Part:
    """What the runs of one recipe say: variants against their baselines, in accuracy and in features."""

    where: str
    accuracy: Sequence[Comparison]
    features: Mapping[Metric, Sequence[Comparison]]
    baseline: str
    table: Table
    more: str = ""

    @property
    def said(self) -> str:
        """What can be claimed, in sentences."""
        parts = [
            _claimed("accuracy", self.accuracy, self.baseline) or _unclear("accuracy", self.accuracy, self.baseline)
        ]
        found = {m: _claimed(_at_the_end(m), group, self.baseline) for m, group in self.features.items() if group}
        parts += filter(None, found.values())
        if unclear := [METRICS[m].title for m, said in found.items() if not said]:
            group = max(self.features.values(), key=len)
            parts.append(_unclear(f"{listed(unclear)} of the last block", group, self.baseline))
        return f"In {self.where}, {'; '.join(parts)}." + self.more


def against_plain(
    e: Evidence, names: Callable[[Evidence], Iterable[str]], broke: Broke,
    about: Callable[[Evidence], str] = lambda _: "", metrics: Sequence[Metric] = ("hfc_lfc",), least: int = 1,
) -> Answer | None:  # fmt: skip
    """Accuracy and features of these variants beside plain's, each as one family, in each recipe.

    `names` gives a recipe's variants; fewer than `least` are no answer to the question.
    """
    parts = []
    for each in e.recipes:
        wanted = list(dict.fromkeys(names(each)))
        groups = each.by_variant(wanted, points)
        if len(groups) < least:
            continue
        plain = each.by_variant([PLAIN], points).get(PLAIN, {})
        features = {}
        for metric in metrics:
            ends = each.by_variant([PLAIN, *wanted], last(metric))
            features[metric] = compare_seeds(ends.pop(PLAIN, {}), ends)
        found = compare_seeds(plain, groups)
        table = _table(each, [PLAIN, *wanted], found, features)
        parts.append(Part(each.name, found, features, f"{PLAIN}'s", table, about(each)))
    return _together(e, parts, broke)


def _starts(e: Evidence) -> Part | None:
    """Other standard deviations of ψ, each against the start of its form."""
    starts = [r for r in e.records if r.std is not None and (r.fraction, r.subset) == (TEN, 0) and not is_bounded(r)]
    own = sorted({r.variant for r in starts})
    names = sorted({with_start(r) for r in starts}, key=_in_order)
    found: list[Comparison] = []
    features: list[Comparison] = []
    for variant in own:
        baseline = f"{variant}'s {STANDARD_DEVIATION[Variant.parse(variant).form]:g}"
        others = [name for name in names if name.startswith(f"{variant} ")]
        for value, comparisons in ((points, found), (last("hfc_lfc"), features)):
            groups = e.by_variant([variant, *others], value)
            comparisons += compare_seeds(groups.pop(variant, {}), groups, baseline)
    if not found:
        return None
    found, features = one_family(found), one_family(features)
    table = _table(e, sorted([*own, *names], key=_in_order), found, {"hfc_lfc": features}, "minus own start (95 %)")
    where = f"{e.name} (a form's own start is 0.3 if symmetric, else 0.1)"
    return Part(where, found, {"hfc_lfc": features}, "that of the form's own start", table)


def _together(e: Evidence, parts: Iterable[Part | None], broke: Broke) -> Answer | None:
    """One answer from all recipes; leaning where at least one variant can be told from its baseline."""
    there = [part for part in parts if part is not None]
    broken = "".join(each.broken(broke) for each in e.recipes)
    paired = [part for part in there if any(c.difference.pairs for c in part.accuracy)]
    if not paired:
        said = "No run shares a seed with its baseline yet." if there else ""
        return Answer("open", "0 pairs", f"{said}{broken}".strip()) if there or broken else None
    claimed = any(
        c.differs for part in paired for c in [*part.accuracy, *(f for g in part.features.values() for f in g)]
    )
    counts = [_pairs(part.accuracy) + (f" in {part.where.partition(' (')[0]}" if len(paired) > 1 else "")
              for part in paired]  # fmt: skip
    return Answer(
        "leaning" if claimed else "open",
        listed(counts),
        " ".join(part.said for part in paired) + broken,
        tuple(part.table for part in paired),
    )


def _pairs(comparisons: Sequence[Comparison]) -> str:
    known = sorted({c.difference.pairs for c in comparisons if c.difference.pairs})
    return f"{known[0]} pairs" if len(known) == 1 else f"{known[0]} to {known[-1]} pairs"


def _table(
    e: Evidence, names: Iterable[str], found: Sequence[Comparison], features: Mapping[Metric, Sequence[Comparison]],
    minus: str = "minus plain (95 %)",
) -> Table:  # fmt: skip
    """A row a variant, the most accurate first: accuracy and features, and p of each against the baseline."""
    accuracy = e.by_variant(names, points)
    ends = {metric: e.by_variant(names, last(metric)) for metric in features}
    against = {c.name: c for c in found}
    rows: list[list[Value]] = []
    for name, seeds in sorted(accuracy.items(), key=lambda item: -fmean(item[1].values())):
        c = against.get(name)
        row: list[Value] = [name, str(Summary.of([*seeds.values()]))]
        row += [None, None] if c is None else [c.difference.text(), p_text(c.p_holm)]
        for metric, comparisons in features.items():
            values = ends[metric].get(name, {})
            p = next((p_text(c.p_holm) for c in comparisons if c.name == name), None)
            row += [f"{fmean(values.values()):.3g}" if values else None, p]
        rows.append(row)
    columns = ["variant", "accuracy in %", minus, "p"]
    columns += [cell for m in features for cell in (_at_the_end(m), f"p, {METRICS[m].title}")]
    return Table(f"{e.title}; p is Holm's for its column", columns, rows)


def _claimed(what: str, comparisons: Sequence[Comparison], baseline: str) -> str:
    """For which of them a quantity is above or below the baseline's after the correction; nothing where for none."""
    known = [c for c in comparisons if c.difference.pairs > 1]
    above, below = ([c.name for c in known if c.differs and (c.difference.mean > 0) == up] for up in (True, False))
    rest = len(comparisons) - len(above) - len(below)
    said = [f"{side} {baseline} with {listed(names)}" for side, names in (("above", above), ("below", below)) if names]
    left = f" (that of the other{f' {rest}' if rest > 1 else ''} cannot be told from it)" if rest else ""
    return f"{what} is {' and '.join(said)}{left}" if said else ""


def _unclear(what: str, comparisons: Sequence[Comparison], baseline: str) -> str:
    """That there is no such difference to claim."""
    several = "either" if len(comparisons) == 2 else f"any of the {len(comparisons)}"
    return f"{what} with {several if comparisons[1:] else comparisons[0].name} cannot be told from {baseline}"


def _at_the_end(metric: Metric) -> str:
    """What sentences and columns call a metric of the last block."""
    return f"{METRICS[metric].title} of the last block"


def _as_meant(e: Evidence) -> str:
    """Which fixes change the metric of their own paper in the direction of that paper, as one family."""
    found: list[Comparison] = []
    for fix, (metric, _) in MEANT.items():
        ends = e.by_variant([PLAIN, fix], last(metric))
        found += compare_seeds(ends.pop(PLAIN, {}), ends)
    kept, against, unclear = list[str](), list[str](), list[str]()
    for c in one_family(found):
        metric, up = MEANT[c.name]
        side = unclear if not c.differs else kept if (c.difference.mean > 0) == up else against
        side.append(f"{c.name} ({METRICS[metric].title} {c.difference.text()})")
    said = [
        f"{what}: {', '.join(names)}"
        for what, names in (("as its paper says", kept), ("against it", against), ("no change that can be claimed",
                                                                                  unclear))
        if names
    ]  # fmt: skip
    return f" Of the last block's metric that each fix's own paper means to change, {'; '.join(said)}." if said else ""


def _in_order(name: str) -> tuple[int, str]:
    """Whole models before some of their layers."""
    return ("@" in name) + ("+" in name), name
