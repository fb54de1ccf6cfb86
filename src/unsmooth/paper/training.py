"""Ours: how the eigenvalues of H and the features move while plain and controlled models train."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from unsmooth.errors import DataError
from unsmooth.figures import Drawing, Run, runs_figure
from unsmooth.metrics.differences import paired_difference
from unsmooth.paper.item import Context, Item, Result, Table, Value
from unsmooth.paper.records import TITLES, VARIANTS, Summary, load_records, percent, provenance
from unsmooth.training.engine.record import TrainingRecord

Row = dict[str, Any]  # one logged epoch of a run
Groups = dict[tuple[float, str], list[TrainingRecord]]  # runs by share of the data and variant
LINES = 6  # epochs of a run that the table shows

QUANTITIES: dict[str, Callable[[Row], float]] = {
    "H in [−1, 0)": lambda row: _mean(row["spectrum"]["in_minus_one_zero"]),
    "H > 0": lambda row: _mean(row["spectrum"]["positive"]),
    "HFC/LFC": lambda row: row["smoothing"]["hfc_lfc"][-1],
    "accuracy": lambda row: row["test"]["accuracy"],
}


def run(context: Context) -> Result:
    """From the records of our runs: a table by epoch, one by layer, and a figure."""
    notes: list[str] = []
    records = [r for r in load_records(context, notes) if r.variant in VARIANTS and _rows(r)]
    if not records:
        raise DataError("no record of a plain, sharpening or smoothing run with its log: `unsmooth train cifar100 …`")
    groups: Groups = {}
    for record in sorted(records, key=lambda r: (-r.fraction, VARIANTS.index(r.variant), r.seed)):
        groups.setdefault((record.fraction, record.variant), []).append(record)
    return Result(
        label=f"How H's eigenvalues and the features move in training, from the records of {len(records)} runs of ours",
        tables=[by_epoch(groups), by_layer(groups), gaps(groups)],
        figures={"training": _figure(groups)},
        notes=[
            "H is that of each layer's summed heads, without the LayerNorm before it; shares are means over layers; "
            "HFC/LFC is that of the last block's output; ± is the standard deviation over seeds",
            "where control holds H on one side of zero, what the first records count on the other are "
            "eigenvalues that training drove to 0, whose rounding has either sign",
            *notes,
        ],
        about=provenance(records),
    )


def by_epoch(groups: Groups) -> Table:
    """A few epochs of every kind of run."""
    rows: list[list[Value]] = []
    for (share, variant), records in groups.items():
        common = _common_epochs(records)
        for epoch in sorted({common[round(i * (len(common) - 1) / (LINES - 1))] for i in range(LINES)}):
            cells = [_over_seeds(records, epoch, quantity) for quantity in QUANTITIES.values()]
            rows.append([percent(share), TITLES[variant], epoch, *cells])
    return Table("By epoch", ["data", "model", "epoch", *QUANTITIES], rows)


def by_layer(groups: Groups) -> Table:
    """Where in the network the eigenvalues of plain models go, from the first epoch that all seeds logged on."""
    rows: list[list[Value]] = []
    for (share, variant), records in groups.items():
        if variant != "plain":
            continue
        common = _common_epochs(records)
        first, last = (
            list(zip(*(_rows(r)[epoch]["spectrum"]["in_minus_one_zero"] for r in records), strict=True))
            for epoch in (common[0], common[-1])
        )
        for layer, (before, after) in enumerate(zip(first, last, strict=True)):
            change = [b - a for a, b in zip(before, after, strict=True)]
            up = f"{sum(c > 0 for c in change)} of {len(change)}"
            ends = f"{common[0]} → {common[-1]}"
            rows.append([percent(share), layer, ends, _shown(before), _shown(after), f"{_mean(change):+.3f}", up])
    columns = ["data", "layer", "epochs", "first", "last", "change", "rises in"]
    return Table("Plain models: H in [−1, 0) by layer", columns, rows)


def gaps(groups: Groups) -> Table:
    """How far the controlled models are from plain ones, on the seeds and epochs that both have."""
    rows: list[list[Value]] = []
    for (share, variant), records in groups.items():
        plain = {r.seed: r for r in groups.get((share, "plain"), [])}
        both = [(plain[r.seed], r) for r in records if r.seed in plain and variant != "plain"]
        common = sorted(set.intersection(*(set(_rows(r)) for pair in both for r in pair))) if both else []
        for epoch in dict.fromkeys(common[:1] + common[-1:]):
            ratios = [[QUANTITIES["HFC/LFC"](_rows(r)[epoch]) for r in pair] for pair in both]
            found = paired_difference(*zip(*ratios, strict=True))
            factor = math.exp(_mean([math.log(b / a) for a, b in ratios]))
            rows.append([percent(share), TITLES[variant], epoch, found.text(), f"×{factor:.2f}", found.pairs])
    columns = ["data", "model", "epoch", "minus plain (95 %)", "against plain", "n"]
    return Table("HFC/LFC of the last block beside plain's", columns, rows)


def _rows(record: TrainingRecord) -> dict[int, Row]:
    """Logged rows by epoch, if they hold everything."""
    return {r["epoch"]: r for r in record.rows if {"spectrum", "smoothing", "test"} <= r.keys()}


def _common_epochs(records: list[TrainingRecord]) -> list[int]:
    common = set.intersection(*(set(_rows(record)) for record in records))
    return sorted(common) or [max(_rows(records[0]))]


def _over_seeds(records: list[TrainingRecord], epoch: int, quantity: Callable[[Row], float]) -> str:
    return _shown([quantity(rows[epoch]) for record in records if epoch in (rows := _rows(record))])


def _shown(values: Any) -> str:
    summary = Summary.of(list(values))
    assert summary is not None
    return summary.show(".3f")


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _figure(groups: Groups) -> Drawing:
    """One panel for each quantity, one line for each kind of run."""
    panels: dict[str, dict[Run, tuple[list[int], list[list[float]]]]] = {title: {} for title in QUANTITIES}
    for (share, variant), records in groups.items():
        run, epochs = Run(variant, share, f"{TITLES[variant]}, {percent(share)}"), _common_epochs(records)
        for title, quantity in QUANTITIES.items():
            panels[title][run] = epochs, [[quantity(_rows(r)[epoch]) for epoch in epochs] for r in records]
    return runs_figure(panels, "epoch", "How H's eigenvalues and the features move in training")


ITEM = Item(
    "training",
    "ours",
    "How the eigenvalues of H and the features move in training",
    needs="the records of training runs that ship with unsmooth, or --runs FOLDER; seconds.",
    run=run,
)
