"""Ours: every variant that was trained (forms, starts of ψ, layers, published fixes) beside plain."""

from __future__ import annotations

import math
from statistics import fmean
from typing import Any

from unsmooth.errors import DataError
from unsmooth.figures.text import listed
from unsmooth.metrics.differences import compare_seeds, p_text
from unsmooth.paper.evidence import NAMES
from unsmooth.paper.item import Context, Item, Result, Table, Value
from unsmooth.paper.records import Summary, accuracies, load_records, percent, provenance, with_start
from unsmooth.prose import counted
from unsmooth.training.engine.record import TrainingRecord

COLUMNS = ["data", "variant", "accuracy in %", "minus plain (95 %)", "p, Holm", "HFC/LFC", "ψ without gradient",
           "condition of Θ"]  # fmt: skip


def run(context: Context) -> Result:
    """From the records of our runs, a table for each recipe: one row for each variant and share, the best first."""
    notes: list[str] = []
    found = {recipe: load_records(context, notes, recipe, any_start=True) for recipe in NAMES}
    if not any(found.values()):
        raise DataError("no record of a run of the recipe cifar100: `unsmooth train cifar100 --variant …`")
    tables, claims, counts = list[Table](), list[str](), list[str]()
    for recipe, records in found.items():
        if records:
            table, said = _recipe(recipe, records)
            tables.append(table)
            claims += said
            counts.append(f"{counted(len(records), 'run')} of {recipe}")
    return Result(
        label=f"Every variant that we trained on CIFAR-100, from the records of {listed(counts)}",
        tables=tables,
        notes=[
            *claims,
            "± is the standard deviation over seeds; differences and intervals are paired by seed (Student's t); p is "
            "Holm's for all variants of that recipe and share of the data; an order without a p below 0.05 is no "
            "ranking",
            "an accuracy is uncertain by up to ±1 point on 10,000 test images, whatever the seed",
            "HFC/LFC is that of the last block's output; a ψ outside its clip has no gradient and holds its eigenvalue "
            "at 0 or ±1; the condition number is that of the worst layer and seed",
            *dict.fromkeys(notes),
        ],
        about={name: about for records in found.values() for name, about in provenance(records).items()},
    )


def _recipe(recipe: str, records: list[TrainingRecord]) -> tuple[Table, list[str]]:
    """A recipe's table, the largest share of the data first, and the differences that can be claimed."""
    groups: dict[tuple[float, str], list[TrainingRecord]] = {}
    for record in records:
        groups.setdefault((record.fraction, with_start(record)), []).append(record)
    rows, claims = list[list[Value]](), list[str]()
    for share in sorted({share for share, _ in groups}, reverse=True):
        table, said = _rows({name: g for (s, name), g in groups.items() if s == share}, share)
        rows += table
        claims += [f"{recipe}, {text}" for text in said]
    return Table(f"At the end of training, {recipe}", COLUMNS, rows), claims


def _rows(groups: dict[str, list[TrainingRecord]], share: float) -> tuple[list[list[Value]], list[str]]:
    """One row for each variant, the highest mean first, and the differences that can be claimed."""
    seeds = {name: accuracies(records, with_start)[name] for name, records in groups.items()}
    plain = seeds.get("plain", {})
    against = {c.name: c for c in compare_seeds(plain, {n: s for n, s in seeds.items() if n != "plain"})}
    rows: list[list[Value]] = []
    for name in sorted(groups, key=lambda name: -fmean(seeds[name].values())):
        ends = [record.end for record in groups[name] if record.rows]
        found = against.get(name)
        gap = [None, None] if found is None else [found.difference.text(), p_text(found.p_holm)]
        summary = Summary.of([*seeds[name].values()])
        rows.append([percent(share), name, str(summary), *gap, *_at_the_end(ends)])
    claimed = [c for c in against.values() if c.differs or c.spreads_differently]
    return rows, [f"{percent(share)}: {c.claim()}" for c in claimed]


def _at_the_end(ends: list[dict[str, Any]]) -> list[Value]:
    """HFC/LFC, share of ψ without a gradient and condition number, from the last logged rows of a variant's seeds."""
    ratio = Summary.of([end["smoothing"]["hfc_lfc"][-1] for end in ends if "smoothing" in end])
    control = [end["control"] for end in ends if {"saturated", "condition"} <= end.get("control", {}).keys()]
    saturated = Summary.of([100 * values["saturated"] for values in control])
    # a singular Θ has no condition number, which is worse than any
    worst = max((v["condition"] for v in control), key=lambda v: (math.isnan(v), v), default=None)
    return [
        None if ratio is None else f"{ratio.mean:.2f}",
        None if saturated is None else f"{saturated.mean:.0f} %",
        None if worst is None else f"{worst:.3g}",
    ]


ITEM = Item(
    "variants",
    "ours",
    "Every trained variant beside plain: forms, starts, layers, published fixes",
    needs="the records of training runs that ship with unsmooth, or --runs FOLDER (`unsmooth train "
    "--list study`; `study-paper` with the paper's recipe, about 2 minutes a run on one H200); seconds.",
    run=run,
)
