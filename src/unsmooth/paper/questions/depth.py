"""Whether accuracy falls with depth where features smooth: the claim behind the whole literature."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from unsmooth.figures.text import listed
from unsmooth.metrics.differences import LEVEL, compare_seeds, holm, p_text
from unsmooth.metrics.trend import Trend, trend
from unsmooth.paper.evidence import Evidence, last_ratio, points
from unsmooth.paper.item import Table, Value
from unsmooth.paper.questions import Answer, question
from unsmooth.paper.records import VARIANTS, Run, Summary, accuracies
from unsmooth.training.engine.record import TrainingRecord


@question(
    "Does accuracy fall with depth where features smooth?", "the literature; summary, question 10",
    "findings", "the same runs in the paper's recipe, and a longer training at depth",
)  # fmt: skip
def depth(e: Evidence) -> Answer | None:
    """Plain, sharpening and smoothing with more and more layers, in each recipe."""
    found = [(each, each.depths) for each in e.recipes if len(each.depths) > 1]
    said, counts, tables, claimed = list[str](), list[str](), list[Table](), False
    for each, depths in found:
        accuracy, features = _trends(depths, points), _trends(depths, last_ratio)
        if not accuracy:
            continue
        claimed |= any(p < LEVEL for _, p in accuracy.values())
        how = f"In {each.name}, with {min(depths)} to {max(depths)} layers,"
        said.append(
            f"{how} accuracy changes per doubling of their number by, in points: {_slopes(accuracy)}. "
            + _claimed("accuracy", accuracy)
            + (f" HFC/LFC of the last block changes by {_slopes(features)}. " if features else "")
            + (_claimed("HFC/LFC", features) + _both(accuracy, features) if features else "")
            + _beside_plain(depths)
            + each.broken(_is_of_a_depth)
        )
        counts.append(f"{sum(found.values for found, _ in accuracy.values())} runs")
        tables.append(_table(each, depths))
    if not said:
        return None
    return Answer("leaning" if claimed else "open", listed(counts), " ".join(said), tuple(tables))


def _is_of_a_depth(run: Mapping[str, object]) -> bool:
    return "-depth" in str(run.get("run"))


def _by_variant(records: Sequence[TrainingRecord]) -> dict[str, dict[Run, float]]:
    found = accuracies(records)
    return {variant: found[variant] for variant in VARIANTS if variant in found}


def _trends(
    depths: Mapping[int, Sequence[TrainingRecord]], value: Callable[[TrainingRecord], float | None]
) -> dict[str, tuple[Trend, float]]:
    """A line over log₂ of the depth through all runs of a variant, each with a p that is corrected for all lines."""
    found: dict[str, Trend] = {}
    for variant in VARIANTS:
        pairs = [
            (math.log2(layers), v)
            for layers, records in depths.items() for r in records
            if r.variant == variant and (v := value(r)) is not None
        ]  # fmt: skip
        if len({layers for layers, _ in pairs}) > 1:
            found[variant] = trend(*zip(*pairs, strict=True))
    adjusted = holm([line.p for line in found.values()])
    return {variant: (line, p) for (variant, line), p in zip(found.items(), adjusted, strict=True)}


def _slopes(lines: Mapping[str, tuple[Trend, float]]) -> str:
    return "; ".join(f"{variant} {line.text()}" for variant, (line, _) in lines.items())


def _claimed(what: str, lines: Mapping[str, tuple[Trend, float]]) -> str:
    """Whose lines fall or rise after the correction."""
    falls, rises = (_moves(lines, down) for down in (True, False))
    said = [f"that of {listed(names)} {verb}" for names, verb in ((falls, "falls"), (rises, "rises")) if names]
    return f"Of {what}, {' and '.join(said)} (Holm)." if said else f"No fall or rise of {what} can be claimed (Holm)."


def _moves(lines: Mapping[str, tuple[Trend, float]], down: bool) -> list[str]:
    return [name for name, (line, p) in lines.items() if p < LEVEL and (line.slope < 0) == down]


def _both(accuracy: Mapping[str, tuple[Trend, float]], features: Mapping[str, tuple[Trend, float]]) -> str:
    """The variants of which the literature's claim holds."""
    both = [name for name in _moves(accuracy, down=True) if name in _moves(features, down=True)]
    return f" So both fall for {listed(both)}." if both else " Of no variant can it be claimed that both fall."


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
            said.append(f"{variant} " + ", ".join(f"{d.mean:+.2f} ({n})" for n, d in gaps.items()))
    return f" Accuracy minus plain's, in points (layers in brackets): {'; '.join(said)}." if said else ""


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
