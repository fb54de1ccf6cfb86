"""The tables that a measurement grows from: a row a number, one column of statistics over samples, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from torch import Tensor

from unsmooth.analysis.measuring.cells import Cell, Change
from unsmooth.analysis.measuring.changes import READINGS, measured_pairs, steps
from unsmooth.analysis.measuring.per_sample import PerSample, Recorder
from unsmooth.metrics.moments import Moments, MomentsTable


class Shape(NamedTuple):
    """Where a model has its norms, how many layers, and which points (None: those of any such model)."""

    placement: str
    layers: int
    points: tuple[str, ...] | None


class RunningTables:
    """Means over samples of every number and of every change by kind, and the values of each sample."""

    def __init__(self, points: Sequence[str], metrics: Sequence[str], policies: Sequence[str], shape: Shape) -> None:
        self.cells = tuple(Cell(p, m, t) for p, t, m in product(points, policies, metrics))
        row = {cell: i for i, cell in enumerate(self.cells)}
        self._steps: dict[Change, tuple[list[int], list[int]]] = {}  # rows of the cells after and before each
        for reading in READINGS:
            known = steps(reading, *shape)
            for (kind, pairs), name, policy in product(known.items(), metrics, policies):
                if measured := measured_pairs(pairs, points):
                    before, after = ([row[Cell(pair[i], name, policy)] for pair in measured] for i in (0, 1))
                    self._steps[Change(reading, kind, name, policy)] = after, before
        self._values, self._changes = MomentsTable(len(self.cells)), MomentsTable(len(self._steps))
        self._recorder = Recorder()

    def add(
        self,
        values: Mapping[tuple[str, str], Mapping[str, Tensor]],
        present_of: Callable[[int], npt.NDArray[np.bool_] | None],
        keys: Tensor | None,
    ) -> None:
        """A batch: values by point and policy, and of so many samples those that have one in each row (None: all)."""
        table = np.stack([values[cell.point, cell.tokens][cell.metric].numpy() for cell in self.cells])
        present = present_of(table.shape[1])
        self._values.update(table, present)
        self._recorder.add(keys, self.cells, table)
        if self._steps:
            rows = [(table[after] - table[before]).mean(0) for after, before in self._steps.values()]
            both = None if present is None else np.stack([present[a + b].all(0) for a, b in self._steps.values()])
            self._changes.update(np.stack(rows), both)

    def result(self) -> tuple[dict[Cell, Moments], dict[Change, Moments], PerSample | None]:
        """What was found so far."""
        cells = dict(zip(self.cells, self._values.rows(), strict=True))
        changes = dict(zip(self._steps, self._changes.rows(), strict=True))
        return cells, changes, self._recorder.result()
