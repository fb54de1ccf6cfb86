"""Whether accuracy falls with depth where features smooth: the claim behind the whole literature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from unsmooth.figures.text import listed
from unsmooth.metrics.differences import Comparison, compare_seeds, one_family, p_text
from unsmooth.paper.evidence import Evidence, last_ratio
from unsmooth.paper.item import Table, Value
from unsmooth.paper.questions import Answer, question
from unsmooth.paper.records import VARIANTS, Run, Summary, accuracies
from unsmooth.training.engine.record import TrainingRecord


@question(
    "Does accuracy fall with depth where features smooth?", "the literature; summary, question 10",
    "findings", "more seeds, and a longer training at depth",
)  # fmt: skip
def depth(e: Evidence) -> Answer | None:
    """Plain, sharpening and smoothing from the fewest to the most layers, in each recipe."""
    found = [(each, each.depths) for each in e.recipes if len(each.depths) > 1]
    if not found:
        return None
    said, counts, tables, claimed = [], [], [], False
    for each, depths in found:
        changes = _changes(depths)
        pairs = [c.difference.pairs for c in changes]
        claimed |= any(c.differs for c in changes)
        fewest, most = min(depths), max(depths)
        where = each.name
        if changes:
            shown = "; ".join(f"{c.name} {c.difference.text()}" for c in changes)
            said.append(
                f"In {where}, from {fewest} to {most} layers accuracy changes by, in points: {shown}. "
                f"{_courses(changes)}{_beside_plain(depths)}{each.broken(_is_of_a_depth)}"
            )
        else:
            said.append(f"In {where}, no seed was run at both {fewest} and {most} layers.{each.broken(_is_of_a_depth)}")
        counts.append(f"{min(pairs, default=0)} pairs")
        tables.append(_table(each, depths))
    return Answer("leaning" if claimed else "open", listed(counts), " ".join(said), tuple(tables))


def _is_of_a_depth(run: Mapping[str, object]) -> bool:
    return "-depth" in str(run.get("run"))


def _by_variant(records: Sequence[TrainingRecord]) -> dict[str, dict[Run, float]]:
    found = accuracies(records)
    return {variant: found[variant] for variant in VARIANTS if variant in found}


def _changes(depths: Mapping[int, Sequence[TrainingRecord]]) -> list[Comparison]:
    """Each variant at the most layers against itself at the fewest."""
    shallow, deep = (_by_variant(depths[layers]) for layers in (min(depths), max(depths)))
    changes = [
        c for variant, seeds in deep.items()
        for c in compare_seeds(shallow.get(variant, {}), {variant: seeds}, f"{min(depths)} layers")
        if c.difference.pairs
    ]  # fmt: skip
    return one_family(changes)


def _beside_plain(depths: Mapping[int, Sequence[TrainingRecord]]) -> str:
    """Whether the controlled models are ahead of plain at every depth."""
    said = []
    for variant in VARIANTS[1:]:
        gaps = {}
        for layers, records in depths.items():
            found = _by_variant(records)
            for c in compare_seeds(found.get("plain", {}), {variant: found.get(variant, {})}):
                if c.difference.pairs:
                    gaps[layers] = c.difference
        if gaps:
            said.append(f"{variant} minus plain " + ", ".join(f"{d.mean:+.2f} ({n})" for n, d in gaps.items()))
    return f" At each depth (layers in brackets), in points: {'; '.join(said)}." if said else ""


def _courses(changes: Sequence[Comparison]) -> str:
    """What can be claimed of accuracy along depth."""
    falls, rises = (
        [c.name for c in changes if c.differs and (c.difference.mean < 0) == down] for down in (True, False)
    )
    said = [f"that of {listed(names)} {verb}" for names, verb in ((falls, "falls"), (rises, "rises")) if names]
    return (
        f"Of accuracy, {' and '.join(said)} (Holm)." if said else "No fall or rise of accuracy can be claimed (Holm)."
    )


def _table(e: Evidence, depths: Mapping[int, Sequence[TrainingRecord]]) -> Table:
    rows: list[list[Value]] = []
    for layers, records in depths.items():
        found = _by_variant(records)
        gaps = {
            c.name: c for c in compare_seeds(found.get("plain", {}), {v: s for v, s in found.items() if v != "plain"})
        }
        for variant, seeds in found.items():
            ends = [ratio for r in records if r.variant == variant and (ratio := last_ratio(r)) is not None]
            gap = gaps.get(variant)
            row: list[Value] = [layers, variant, str(Summary.of([*seeds.values()]))]
            row += [None, None] if gap is None else [gap.difference.text(), p_text(gap.p_holm)]
            rows.append([*row, f"{fmean(ends):.3g}" if ends else None])
    columns = ["layers", "variant", "accuracy in %", "minus plain (95 %)", "p, Holm", "HFC/LFC, last block"]
    return Table(f"{e.title}, by depth", columns, rows)
