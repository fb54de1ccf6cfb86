"""Streaming mean, deviation and extremes of one number per sample, exact under any split of the data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor

from unsmooth.metrics.processes import gathered, rendezvous
from unsmooth.metrics.student import student_95

Table = npt.NDArray[np.float64]


@dataclass
class Moments:
    """Count, mean, sum of squared deviations, minimum and maximum (float64).

    `std` is the sample's (n − 1). `interval` is Student's 95 % interval of the mean,
    mean ± t · std / √count, over samples taken as independent.

    >>> m = Moments()
    >>> m.update(torch.tensor([1.0, 2.0, 3.0]))
    >>> m.count, round(m.mean, 6), round(m.std, 6)
    (3, 2.0, 1.0)
    """

    count: int = 0
    mean: float = math.nan
    square: float = 0.0  # Σ (x − mean)²
    min: float = math.inf
    max: float = -math.inf

    def update(self, values: Float[Tensor, "*value"]) -> None:
        """Add one value per sample."""
        array = values.detach().to(device="cpu", dtype=torch.float64).numpy().ravel()
        if array.size == 0:
            return
        with np.errstate(invalid="ignore"):  # inf − inf: a deviation that does not exist is nan
            mean = float(array.mean())
            square = float(np.square(array - mean).sum())
        self.merge(Moments(int(array.size), mean, square, float(array.min()), float(array.max())))

    def merge(self, other: Moments) -> Moments:
        """Take in what another accumulator saw (Chan, Golub, LeVeque 1979); returns self."""
        if other.count == 0:
            return self
        if self.count == 0:
            self.count, self.mean, self.square = other.count, other.mean, other.square
            self.min, self.max = other.min, other.max
            return self
        count = self.count + other.count
        delta = other.mean - self.mean
        self.square += other.square + delta * delta * (self.count * other.count / count)
        if math.isfinite(delta):
            self.mean += delta * (other.count / count)
        else:
            self.mean = (self.mean * self.count + other.mean * other.count) / count
        self.min, self.max = _least(self.min, other.min), -_least(-self.max, -other.max)
        self.count = count
        return self

    @property
    def std(self) -> float:
        """Standard deviation of the samples (n − 1); nan below two samples."""
        return math.sqrt(self.square / (self.count - 1)) if self.count > 1 else math.nan

    @property
    def sem(self) -> float:
        """Standard error of the mean."""
        return self.std / math.sqrt(self.count) if self.count > 1 else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """Student's 95 % interval of the mean; (nan, nan) below two samples."""
        return self.mean - self.half_width, self.mean + self.half_width

    @property
    def half_width(self) -> float:
        """Half of that interval; nan below two samples."""
        return student_95(self.count - 1) * self.sem

    def to_dict(self) -> dict[str, float | str]:
        """Plain numbers, for JSON, which has no nan and no infinity: those are words."""
        return {name: value if math.isfinite(value) else str(value) for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, state: Mapping[str, float | str]) -> Moments:
        """The inverse of to_dict; ValueError for numbers that no samples have."""
        numbers = {name: float(state[name]) for name in ("mean", "square", "min", "max")}
        count = state["count"]
        if type(count) is not int or not 0 <= count < 1 << 53 or numbers["square"] < 0:
            raise ValueError(f"count {count!r} and squared deviations {numbers['square']}: expected none below 0")
        return cls(count=count, **numbers)

    def all_reduce(self) -> Moments:
        """What all processes saw together, the same on each; self when there is only one process."""
        return all_reduce([self])[0]


class MomentsTable:
    """The same of many numbers at once, one row each, for which `Moments` one by one would take too long."""

    def __init__(self, rows: int) -> None:
        self.count = np.zeros(rows, np.int64)
        self.mean, self.square = np.full(rows, math.nan), np.zeros(rows)
        self.min, self.max = np.full(rows, math.inf), np.full(rows, -math.inf)

    def update(self, values: Table, present: npt.NDArray[np.bool_] | None = None) -> None:
        """Add a column per sample; where it is not `present`, a row has no value of that sample."""
        if not values.shape[1]:
            return
        here = np.ones_like(values, bool) if present is None else present
        count = here.sum(1)
        new = MomentsTable(len(values))
        with np.errstate(invalid="ignore", divide="ignore"):  # inf − inf: a deviation that does not exist is nan
            new.mean = np.where(here, values, 0.0).sum(1) / count
            new.square = np.square(np.where(here, values - new.mean[:, None], 0.0)).sum(1)
        new.min = np.where(here, values, math.inf).min(1)
        new.max = np.where(here, values, -math.inf).max(1)
        new.count = count
        self.merge(new)

    def merge(self, other: MomentsTable) -> None:
        """Take in what another table saw of the same numbers."""
        count, first = other.count, self.count == 0
        with np.errstate(invalid="ignore", divide="ignore"):
            total, delta = self.count + count, other.mean - self.mean
            moved = np.where(
                np.isfinite(delta),
                self.mean + delta * (count / total),
                (self.mean * self.count + other.mean * count) / total,
            )
            spread = self.square + other.square + delta * delta * (self.count * count / total)
        self.square = np.where(count == 0, self.square, np.where(first, other.square, spread))
        self.mean = np.where(count == 0, self.mean, np.where(first, other.mean, moved))
        self.min, self.max = np.minimum(self.min, other.min), np.maximum(self.max, other.max)
        self.count = total

    def rows(self) -> list[Moments]:
        """What each row has seen."""
        columns = (self.count, self.mean, self.square, self.min, self.max)
        return [Moments(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]


def all_reduce(moments: Sequence[Moments]) -> list[Moments]:
    """Merge each accumulator over the processes of torch.distributed, with one collective for all of them.

    The order is that of the ranks everywhere, so that every process gets the same bits.
    """
    device = rendezvous()
    if device is None or not moments:
        return list(moments)
    rows = [(m.count, m.mean, m.square, m.min, m.max) for m in moments]
    mine = torch.tensor(rows, dtype=torch.float64, device=device)
    merged = [Moments() for _ in moments]
    for table in gathered(mine):
        for total, (count, *rest) in zip(merged, table.tolist(), strict=True):
            total.merge(Moments(int(count), *rest))
    return merged


def _least(a: float, b: float) -> float:
    """min, but nan wins, as it does in numpy."""
    return math.nan if math.isnan(a) or math.isnan(b) else min(a, b)
