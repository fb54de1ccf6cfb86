"""What control does to the features of each column's model, and what the paper says of it (Figures 2 and 4)."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from unsmooth.paper.columns import TABLES, ColumnModels
from unsmooth.paper.item import Context, Table, Value
from unsmooth.paper.records import load_records

LIMITED = 0.1  # an effect below this share of plain's value, or below this difference of cosines, is called limited
RANK_ALONE = "that “only the effective rank is somewhat affected in later layers” (the paper, of ImageNet)"
LEAST_TURN = 0.2  # of a curve's range: a smaller way back is no turn


class Effect(NamedTuple):
    """What control does to a metric, as a mean over the earlier and over the later half of the blocks.

    Of HFC/LFC and effective rank the difference from plain over plain's value, of the cosine the difference itself.
    """

    early: float
    late: float

    @property
    def limited(self) -> bool:
        """Whether it is small in both halves."""
        return not (affected(self.early) or affected(self.late))


def affected(gap: float) -> bool:
    """Whether an effect, as it is shown (in whole percents), is not limited.

    >>> affected(0.094), affected(-0.096)
    (False, True)
    """
    return round(abs(gap), 2) >= LIMITED


def effect(plain: Sequence[Sequence[float]], controlled: Sequence[Sequence[float]], metric: str) -> Effect | None:
    """The effect on curves of a metric by depth, each a mean over seeds; None where there is none to compare."""
    if not plain or not controlled or len(plain[0]) != len(controlled[0]):
        return None
    a, b = ([statistics.fmean(values) for values in zip(*curves, strict=True)] for curves in (plain, controlled))
    half = len(a) // 2
    scale = [1.0] * len(a) if metric == "cosine_similarity" else a
    gaps = [(y - x) / abs(s) if s else 0.0 for x, y, s in zip(a, b, scale, strict=True)]
    return Effect(statistics.fmean(gaps[:half] or gaps), statistics.fmean(gaps[half:]))


def effects(groups: Sequence[ColumnModels]) -> dict[tuple[str, str, str], dict[str, Effect]]:
    """By published data, recipe and variant: the effect of control on each metric, against plain of that recipe."""
    found: dict[tuple[str, str, str], dict[str, Effect]] = {}
    for group in groups:
        plain = next((g for g in groups if (g.recipe, g.variant) == (group.recipe, "plain")), None)
        if plain is None or group.variant == "plain":
            continue
        each = {metric: effect(plain.curves(metric), group.curves(metric), metric) for metric in TABLES.values()}
        if known := {metric: e for metric, e in each.items() if e is not None}:
            found[group.column.data, group.recipe, group.variant] = known
    return found


def cifar_effects(context: Context) -> dict[str, dict[str, Effect]]:
    """The same for CIFAR-100's models on all data, by variant: what an effect that is not limited looks like."""
    records = [r for r in load_records(replace(context, runs=None), []) if r.fraction == 1 and "smoothing" in r.end]
    curves = {
        variant: {m: [r.end["smoothing"][m] for r in records if r.variant == variant] for m in TABLES.values()}
        for variant in ("plain", "sharpening", "smoothing")
    }
    return {
        variant: {m: e for m in TABLES.values() if (e := effect(curves["plain"][m], curves[variant][m], m)) is not None}
        for variant in ("sharpening", "smoothing")
    }


def effects_table(groups: Sequence[ColumnModels], context: Context) -> Table:
    """How far control moves each metric from plain, in the earlier and in the later half of the blocks."""
    from unsmooth.metrics.registry import METRICS

    rows: list[list[Value]] = []
    every = {("CIFAR-100", "cifar100", v): found for v, found in cifar_effects(context).items()} | effects(groups)
    for (_, recipe, variant), found in every.items():
        for metric, each in found.items():
            shown = [f"{e:+.2f}" if metric == "cosine_similarity" else f"{100 * e:+.0f} %" for e in each]
            mark = "limited" if each.limited else None
            rows.append([recipe, variant, METRICS[metric].title, *shown, mark])
    columns = ["recipe", "variant", "metric", "earlier half", "later half", "note"]
    return Table("Effect of control, against plain of the same recipe", columns, rows)


def limited_in_words(groups: Sequence[ColumnModels]) -> list[str]:
    """Whether the paper's two sentences on Figure 2 hold: for The Pile "limited", for ImageNet "only the effective
    rank is somewhat affected in later layers"."""
    from unsmooth.metrics.registry import METRICS

    said = []
    held: dict[str, list[str]] = {}  # by recipe of an ImageNet model: the variants of which it holds
    for (data, recipe, variant), found in effects(groups).items():
        whose = f"{recipe}, {variant}"
        beyond = [METRICS[metric].title for metric, each in found.items() if not each.limited]
        if data == "The Pile":
            verdict = f"is not limited: it reaches {_tenth()} in {_and(beyond)}" if beyond else f"is below {_tenth()}"
            said.append(f"{whose}: the effect of control (the paper: “limited”) {verdict}")
        else:
            against = _against_rank_alone(found)
            said.append(f"{whose}: {RANK_ALONE} " + (f"does not hold: {_and(against)}" if against else "holds"))
            held.setdefault(recipe, []).extend([] if against else [variant])
    for recipe, variants in held.items():
        count = sum(name == recipe for _, name, _ in effects(groups))
        which = f"{len(variants)} ({_and(variants)})" if variants else "none"
        said.append(
            f"{recipe}: {RANK_ALONE} holds for {which} of {count} controlled {'models' if count > 1 else 'model'}; "
            f"affected means that the mean over a half of the blocks differs by {_tenth()} or more"
        )
    return said


def _against_rank_alone(found: dict[str, Effect]) -> list[str]:
    """What speaks against it that the effective rank alone is affected, and in later layers alone."""
    from unsmooth.metrics.registry import METRICS

    against = []
    for metric, each in found.items():
        title = METRICS[metric].title
        early, late = (_shown(metric, gap) for gap in each)
        if metric != "effective_rank" and not each.limited:
            against.append(f"{title} is affected (by {early} in the earlier half of the blocks, {late} in the later)")
        if metric == "effective_rank" and affected(each.early):
            against.append(f"{title} is affected in the earlier half, too ({early})")
        if metric == "effective_rank" and not affected(each.late):
            against.append(f"{title} is not affected in the later half ({late})")
    return against


def forms_in_words(groups: Sequence[ColumnModels]) -> list[str]:
    """How the paper's form for several heads differs from the poster's, in the later half of the blocks."""
    from unsmooth.metrics.registry import METRICS

    found, said = effects(groups), []
    for (data, recipe, variant), split in found.items():
        poster = found.get((data, recipe, variant.removesuffix("-split")))
        if not variant.endswith("-split") or poster is None:
            continue
        pairs = [
            f"{METRICS[m].title} by {_shown(m, split[m].late)} against {_shown(m, poster[m].late)}"
            for m in split
            if m in poster
        ]
        said.append(f"{recipe}, {variant}, against the poster's form, moves {_and(pairs)} in the later half")
    return said


def turns(values: Sequence[float]) -> int:
    """How often a curve turns, a way back of less than a fifth of its range not counted.

    >>> turns([0, 1, 2, 3]), turns([0, 2, 1, 3]), turns([0, 3, 2.9, 4])
    (0, 2, 0)
    """
    least = LEAST_TURN * (max(values) - min(values))
    count, heading, extreme = 0, 0, values[0]
    for value in values[1:]:
        if heading * (value - extreme) >= 0 and (heading or abs(value - extreme) >= least):
            heading, extreme = heading or (1 if value > extreme else -1), value
        elif heading and abs(value - extreme) >= least:
            count, heading, extreme = count + 1, -heading, value
    return count if least > 0 else 0


def oscillation_in_words(groups: Sequence[ColumnModels]) -> list[str]:
    """Whether a plain text model “oscillates between more and less smoothing”: its curves turn twice or more."""
    from unsmooth.metrics.registry import METRICS

    said = []
    for group in groups:
        if group.column.data != "The Pile" or group.variant != "plain":
            continue
        found = {}
        for metric in TABLES.values():
            if curves := group.curves(metric):
                mean = [statistics.fmean(values) for values in zip(*curves, strict=True)]
                found[METRICS[metric].title] = turns(mean)
        if found:
            counts = _and([f"{title} {number}" for title, number in found.items()])
            yes = [title for title, number in found.items() if number > 1]
            verdict = f"it oscillates by {_and(yes)}" if yes else "it does not oscillate"
            said.append(
                f"{group.recipe}, plain: number of turns over depth: {counts}; {verdict} (two turns or more; a way "
                "back of less than a fifth of the curve's range is none)"
            )
    return said


def _tenth() -> str:
    return f"{LIMITED:.0%} of plain's value (cosine: {LIMITED:g})".replace("%", " %")


def _shown(metric: str, value: float) -> str:
    return f"{value:+.2f}" if metric == "cosine_similarity" else f"{100 * value:+.0f} %"


def _and(names: Sequence[str]) -> str:
    from unsmooth.figures.text import listed

    return listed(list(names))
