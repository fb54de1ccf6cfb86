"""Two measurements, or those of all processes, become one of all their samples."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

from unsmooth.analysis.about import About
from unsmooth.analysis.measuring import extremes
from unsmooth.analysis.measuring.measurement import Measurement, MeasureSettings
from unsmooth.analysis.measuring.over_data import over_data
from unsmooth.analysis.measuring.per_sample import all_gather
from unsmooth.errors import UnsmoothError
from unsmooth.metrics import moments
from unsmooth.metrics.moments import Moments
from unsmooth.metrics.processes import everybodys, same_everywhere
from unsmooth.metrics.registry import METRICS
from unsmooth.metrics.second_moment import all_sum


def merge(a: Measurement, b: Measurement) -> Measurement:
    """The measurement of both sets of samples together; both must measure the same things."""
    same = a.cells.keys() == b.cells.keys() and a.changes.keys() == b.changes.keys()
    if not same or a.about.definitions != b.about.definitions:
        raise UnsmoothError(
            "two measurements can be merged only if they hold the same points, metrics and token policies: "
            f"got {len(a.cells)} and {len(b.cells)} cells, "
            f"{len(a.cells.keys() ^ b.cells.keys())} of them in one only"
        )
    whole = [name for name in a.about.settings.metrics if name in METRICS and METRICS[name].over_data]
    if whole and not (a.second_moments and b.second_moments):
        raise UnsmoothError(
            f"{', '.join(whole)} is one number for all of the data, which cannot be made of two of them; only "
            "measurements that were made in this process can be merged: measure all of the data together"
        )
    merged = Measurement(
        {cell: Moments().merge(m).merge(b.cells[cell]) for cell, m in a.cells.items()},
        {change: Moments().merge(m).merge(b.changes[change]) for change, m in a.changes.items()},
        _with_batches(a, a.about.data.batches + b.about.data.batches),
        a.partial or b.partial,
        list(dict.fromkeys(a.notes + b.notes)),
        a.per_sample.merge(b.per_sample) if a.per_sample and b.per_sample else None,
        {p: e.merge(b.extremes[p]) for p, e in a.extremes.items() if p in b.extremes},
    )
    if not whole:
        return merged
    return over_data(merged, {at: m.merge(b.second_moments[at]) for at, m in a.second_moments.items()})


def all_reduce(mine: Measurement) -> Measurement:
    """Every process's samples together, on every process."""
    said = json.dumps([sorted(mine.cells), sorted(mine.changes), mine.about.to_json()["definitions"]])
    if not same_everywhere(said):
        raise UnsmoothError(
            "the processes measured different points, metrics, token policies or definitions: call measure with "
            "the same arguments on all of them"
        )
    gathered = all_gather(None if mine.per_sample is None else mine.per_sample.ordered(sorted(mine.cells)))
    batches, partial = moments.all_reduce([Moments(1, float(n)) for n in (mine.about.data.batches, mine.partial)])
    reduced = Measurement(
        _reduced(mine.cells),
        _reduced(mine.changes),
        _with_batches(mine, round(batches.mean * batches.count)),
        partial.mean > 0,
        list(dict.fromkeys(chain.from_iterable(everybodys(mine.notes)))),
        None if gathered is None else gathered.ordered(mine.cells),
        extremes.all_gather(mine.extremes),
    )
    return over_data(reduced, all_sum(mine.second_moments)) if mine.second_moments else reduced


def _with_batches(found: Measurement, count: int) -> About[MeasureSettings]:
    return replace(found.about, data=replace(found.about.data, batches=count))


def _reduced(found: Mapping[Any, Moments]) -> dict[Any, Moments]:
    """Over all processes, by address: the order in which each of them met the addresses does not matter."""
    order = sorted(found)
    merged = dict(zip(order, moments.all_reduce([found[address] for address in order]), strict=True))
    return {address: merged[address] for address in found}
