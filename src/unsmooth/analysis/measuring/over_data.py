"""Metrics of the data as a whole: one number for all samples, from the second moments of their tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import product

import torch

from unsmooth.analysis.measuring.cells import Cell, Change
from unsmooth.analysis.measuring.changes import READINGS, change, steps
from unsmooth.analysis.measuring.measurement import Measurement
from unsmooth.metrics.moments import Moments
from unsmooth.metrics.registry import METRICS
from unsmooth.metrics.second_moment import SecondMoment


def over_data(found: Measurement, moments: Mapping[tuple[str, str], SecondMoment]) -> Measurement:
    """The measurement with these metrics too, from the second moments at every point and under every policy."""
    settings, model = found.about.settings, found.about.model
    ranks = {id(moment): moment.effective_rank() for moment in {id(m): m for m in moments.values()}.values()}
    names = [name for name in settings.metrics if METRICS[name].over_data]
    numbers = {
        Cell(point, name, policy): _single(ranks[id(m)], m.samples)
        for (point, policy), m in moments.items()
        for name in names
    }
    addresses = (Cell(p, m, t) for p, t, m in product(settings.points, settings.tokens, settings.metrics))
    cells = {address: numbers.get(address) or found.cells[address] for address in addresses}
    changes = {change: m for change, m in found.changes.items() if change.metric not in names}
    count = max(m.samples for m in moments.values())
    for reading, name, policy in product(READINGS, names, settings.tokens):
        here = {p: torch.tensor([numbers[Cell(p, name, policy)].mean]) for p in settings.points}
        for kind, pairs in steps(reading, model.placement, model.layers).items():
            if (difference := change(here, pairs)) is not None:
                changes[Change(reading, kind, name, policy)] = _single(float(difference), count)
    return replace(found, cells=cells, changes=changes, second_moments=dict(moments))


def _single(value: float, samples: int) -> Moments:
    """One number for so many samples, over which it has no spread."""
    return Moments(samples, value, math.nan, value, value)
