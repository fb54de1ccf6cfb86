"""Two kinds of training run, each with several seeds: every quantity that both recorded, paired by seed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from glob import glob
from pathlib import Path

from unsmooth.errors import DataError
from unsmooth.metrics.differences import compare_seeds, holm, p_text
from unsmooth.paper.evidence import last
from unsmooth.paper.item import Result, Table, Value
from unsmooth.paper.records import Summary, provenance
from unsmooth.training.engine.record import SCHEMA, TrainingRecord

QUANTITIES: dict[str, Callable[[TrainingRecord], float | None]] = {
    "accuracy in %": lambda r: 100 * r.final["accuracy"] if "accuracy" in r.final else None,
    "test loss": lambda r: r.final.get("loss"),
    "calibration error": lambda r: r.final.get("calibration_error"),
    "training loss": lambda r: r.end.get("train_loss"),
    "HFC/LFC, last block": last("hfc_lfc"),
    "cosine similarity, last block": last("cosine_similarity"),
    "effective rank, last block": last("effective_rank"),
}


def find_records(pattern: str) -> list[TrainingRecord]:
    """The records that a path or a pattern names (`runs/*-plain-seed*`); none where it names anything else."""
    found = []
    for name in sorted(glob(pattern)):
        path = Path(name, "record.json") if Path(name).is_dir() else Path(name)
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return []
        if not isinstance(content, dict) or content.get("schema") != SCHEMA:
            return []
        found.append(TrainingRecord.from_json(content, str(path)))
    return found


def over_seeds(first: str, second: str) -> Result | None:
    """The second kind of run minus the first; None where these are no records of runs."""
    records = find_records(first), find_records(second)
    if not all(records):
        if any(records):
            other = second if records[0] else first
            raise DataError(f"{other}: expected the records of training runs (record.json), as on the other side")
        return None
    names = tuple(_kind(group) for group in records)
    differences = {}
    for quantity, value in QUANTITIES.items():
        a, b = ({(r.subset, r.seed): float(v) for r in group if (v := value(r)) is not None} for group in records)
        if a and b:
            (differences[quantity],) = compare_seeds(a, {names[1]: b}, names[0])
    adjusted = holm([c.difference.p for c in differences.values()])
    rows: list[list[Value]] = []
    for (quantity, c), p in zip(differences.items(), adjusted, strict=True):
        sides = [
            Summary.of([float(v) for r in group if (v := QUANTITIES[quantity](r)) is not None]) for group in records
        ]
        digits = 2 if quantity.startswith("accuracy") else 3
        cells = [None if side is None else side.show(f".{digits}f") for side in sides]
        rows.append([quantity, *cells, c.difference.text(digits), p_text(p), p_text(c.spread.brown_forsythe)])
    columns = ["", *names, "difference (95 %)", "p", "p of spread"]
    accuracy = differences.get("accuracy in %")
    return Result(
        label=f"{names[1]} minus {names[0]}, {len(records[0])} and {len(records[1])} runs",
        tables=[Table("Over seeds", columns, rows)],
        notes=[
            *([accuracy.claim()] if accuracy is not None else []),
            "± is the standard deviation over seeds; differences are paired by seed, intervals Student's; p is Holm's "
            "for all quantities; p of spread is Brown and Forsythe's, of each quantity alone",
        ],
        about=provenance([*records[0], *records[1]]),
    )


def _kind(records: Sequence[TrainingRecord]) -> str:
    """What these runs have in common; runs of several kinds under one name would be no seeds of one thing."""
    kinds = {(r.recipe.get("name"), r.variant, r.fraction, r.std, r.subset) for r in records}
    if len(kinds) > 1:
        raise DataError(f"these runs are of several kinds, not seeds of one: {', '.join(r.run for r in records)}")
    (_, variant, fraction, std, subset) = kinds.pop()
    share = ("" if fraction == 1 else f", {100 * fraction:g} %") + (f" (subset {subset})" if subset else "")
    return variant + ("" if std is None else f" (ψ's std {std:g})") + share
