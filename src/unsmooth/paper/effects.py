"""What control does to the features of each column's model, and what the paper says of it (Figures 2 and 4)."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from unsmooth.figures.text import listed
from unsmooth.metrics.registry import METRICS
from unsmooth.paper.columns import TABLES, ColumnModels
from unsmooth.paper.item import Context, Table, Value
from unsmooth.paper.records import load_records

LIMITED = 0.1  # an effect below this share of plain's value, or below this difference of cosines, is called limited
SAYS = {
    "ImageNet": "only the effective rank is somewhat affected in later layers",
    "The Pile": "limited",
}
OSCILLATES = (
    "the paper says that the crammed BERT “appears to oscillate between more and less smoothing”; a curve oscillates "
    "here if it turns twice or more over depth (a way back of less than a fifth of its range is no turn)"
)
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
    rows: list[list[Value]] = []
    every = {("CIFAR-100", "cifar100", v): found for v, found in cifar_effects(context).items()} | effects(groups)
    for (data, recipe, variant), found in ((key, each) for key, each in every.items() if each):
        shown = [", ".join(_shown(m, gap) for gap in found[m]) if m in found else None for m in TABLES.values()]
        verdict = None if data not in SAYS else "yes" if as_said(data, found) else "no"
        rows.append([recipe, variant, *shown, verdict])
    titles = [METRICS[metric].title for metric in TABLES.values()]
    title = "Effect of control: difference from plain of the same recipe in the earlier, the later half of the blocks"
    return Table(title, ["recipe", "variant", *titles, "as the paper says"], rows)


def as_said(data: str, found: dict[str, Effect]) -> bool:
    """Whether the paper's words on Figure 2 hold: of The Pile "limited"; of ImageNet that the effective rank alone is
    affected, and in later layers alone."""
    if data == "The Pile":
        return all(each.limited for each in found.values())
    rank = found.get("effective_rank")
    alone = all(each.limited for metric, each in found.items() if metric != "effective_rank")
    return rank is not None and alone and affected(rank.late) and not affected(rank.early)


def said_in_words(groups: Sequence[ColumnModels]) -> list[str]:
    """Of how many models the paper's words on Figure 2 hold, and what counts as an effect."""
    said = []
    for data, quote in SAYS.items():
        found = {key: each for key, each in effects(groups).items() if key[0] == data}
        if found:
            held = [f"{recipe}, {variant}" for (_, recipe, variant), each in found.items() if as_said(data, each)]
            which = f"{len(held)} ({'; '.join(held)})" if held else "none"
            said.append(
                f"the paper says of {data}: “{quote}”; this holds for {which} of {len(found)} controlled "
                f"{'models' if len(found) > 1 else 'model'}"
            )
    tenth = f"{LIMITED:.0%} of plain's value (cosine: {LIMITED:g})".replace("%", " %")
    rule = f"an effect counts where the mean over a half of the blocks differs by {tenth} or more"
    return [*said, rule] if said else []


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
            counts = listed([f"{title} {number}" for title, number in found.items()])
            yes = [title for title, number in found.items() if number > 1]
            verdict = f"it oscillates by {listed(yes)}" if yes else "it does not oscillate"
            said.append(f"{group.recipe}, plain: turns over depth: {counts}; {verdict}")
    return [OSCILLATES, *said] if said else []


def _shown(metric: str, value: float) -> str:
    return f"{value:+.2f}" if metric == "cosine_similarity" else f"{100 * value:+.0f} %"
