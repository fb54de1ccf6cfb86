"""The poster's Table 3: accuracy on CIFAR-100 by corruption intensity."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean
from typing import Any

from unsmooth.errors import CheckpointError
from unsmooth.paper import evaluated
from unsmooth.paper.item import Context, Item, Result, Table, Value
from unsmooth.paper.published import published
from unsmooth.paper.records import (
    OTHER_VARIANT,
    TITLES,
    VARIANTS,
    Summary,
    beside,
    json_files,
    percent,
    records_folder,
    short_variant,
)
from unsmooth.training import Evaluation

PATTERN = "*.corruptions.json"


def run(context: Context) -> Result:
    """Ours on regenerated CIFAR-100-C beside the published; computed now for models that are named."""
    notes: list[str] = []
    found = evaluated.evaluations(context, corruptions=True) if evaluated.wanted(context) else _read(context, notes)
    unknown = [e.model for e in found if evaluated.share(e) is None]
    if unknown:
        notes.append(f"left out, since nothing says how much data they were trained on: {', '.join(unknown)}")
    if other := [e.model for e in found if e.variant not in VARIANTS]:
        notes.append(f"left out, {OTHER_VARIANT}: {', '.join(other)}")
    shares = sorted({share for e in found if (share := evaluated.share(e)) is not None}, reverse=True) or [1.0]
    rounded = any(e.precision == "bf16" for e in found)
    names = ", ".join(e.model for e in found) or "no model yet"
    return Result(
        label=f"Mean accuracy over the 15 corruptions of regenerated CIFAR-100-C, beside the poster's: {names}",
        tables=[table_of(share, [e for e in found if evaluated.share(e) == share]) for share in shares],
        notes=[
            *notes,
            *beyond_clean(found),
            *evaluated.image_note(e.clean.images for e in found),
            *(["classified in bfloat16, which moves an accuracy by about a tenth of a point"] if rounded else []),
            "± is the standard deviation over models of ours; the poster does not say what its ± is",
            "regenerated CIFAR-100-C: CIFAR-C's constants and our random draws; frost's photographs are replaced by a "
            "procedural texture; the poster's own corrupted images are not public",
        ],
        about={e.model: {"images": e.clean.images, "seed": _corrupted(e)["seed"]} for e in found},
    )


def table_of(share: float, found: list[Evaluation]) -> Table:
    """Models of one share of the data; only those of all data stand against the published accuracies."""
    table = published("poster-table3")
    rows: list[list[Value]] = []
    for number, severity in enumerate(table["columns"]):
        ours = {
            variant: Summary.of([100 * _accuracy(e, severity) for e in found if e.variant == variant])
            for variant in VARIANTS
        }
        for variant, (mine, theirs, gap, mark) in beside(ours, {v: table[v][number] for v in VARIANTS}).items():
            rows.append([severity, TITLES[variant], mine, theirs, gap if share == 1 else None, mark])
    title = f"{table['about']}; ours trained on {percent(share)} of the data"
    if share == 1:
        return Table(title, ["intensity", "model", "ours", "published", "difference", "note"], rows)
    title += ", the poster's on all of it: compare the order of the models, not the accuracies"
    columns = ["intensity", "model", f"ours ({percent(share)})", "published (100 %)", "note"]
    return Table(title, columns, [[*row[:4], row[5]] for row in rows])


def beyond_clean(found: list[Evaluation]) -> list[str]:
    """What is left of a difference once that on clean images is taken away: only this speaks of the corruptions."""
    table, severities = published("poster-table3"), published("poster-table3")["columns"]
    theirs = {v: [mean for mean, _ in table[v]] for v in VARIANTS}
    said = []
    for share in sorted({s for e in found if (s := evaluated.share(e)) is not None}, reverse=True):
        models = [e for e in found if evaluated.share(e) == share]
        ours = {v: [fmean(100 * _accuracy(e, s) for e in models if e.variant == v) for s in severities]
                for v in VARIANTS if any(e.variant == v for e in models)}  # fmt: skip
        if share == 1 and "plain" in ours:
            said.append(
                f"plain, ours minus the poster's, less that on clean images: {_gaps(ours['plain'], theirs['plain'])}"
            )
        for variant in ("smoothing", "sharpening"):
            if {"plain", variant} <= ours.keys():
                gap = _gaps(ours[variant], ours["plain"])
                poster = f" (poster: {_gaps(theirs[variant], theirs['plain'])})" if share == 1 else ""
                said.append(f"{percent(share)}: {variant} minus plain, less that on clean images: {gap}{poster}")
    return said


def _gaps(a: list[float], b: list[float]) -> str:
    """Differences by intensity minus the first one.

    >>> _gaps([3.0, 2.0, 1.0], [2.0, 0.5, 0.5])
    '+0.50, -0.50'
    """
    gaps = [x - y for x, y in zip(a, b, strict=True)]
    return ", ".join(f"{gap - gaps[0]:+.2f}" for gap in gaps[1:])


def _read(context: Context, notes: list[str]) -> list[Evaluation]:
    """Results that `unsmooth evaluate --corruptions --out` wrote, each model and seed of the corruptions once."""
    found: dict[tuple[str, int], Evaluation] = {}
    for name, content in json_files(records_folder(context), PATTERN, notes):
        try:
            e = Evaluation.from_json(content, name)
        except CheckpointError as error:
            notes.append(f"left out: {error}")
            continue
        if e.variant is None or not {"seed", "mean"} <= _corrupted(e).keys():
            notes.append(f"left out: {name} has no {'variant' if e.variant is None else 'corruptions'}")
        else:
            found[e.run or e.model, _corrupted(e)["seed"]] = replace(e, variant=short_variant(e.variant))
    return list(found.values())


def _corrupted(evaluation: Evaluation) -> dict[str, Any]:
    return evaluation.corruptions or {}


def _accuracy(evaluation: Evaluation, severity: str) -> float:
    return evaluation.clean.accuracy if severity == "0" else float(_corrupted(evaluation)["mean"][severity])


ITEM = Item(
    "poster-table3",
    "poster",
    "Corruption robustness: accuracy on regenerated CIFAR-100-C by intensity",
    needs="results of `unsmooth evaluate MODEL --data CIFAR100 --corruptions --out NAME.corruptions.json`, shipped or "
    "in --runs FOLDER; or --recompute --data CIFAR100 (--model REFERENCE for others) to compute them now: 75 times the "
    "test set, hours on a CPU unless --samples takes fewer images.",
    run=run,
)
