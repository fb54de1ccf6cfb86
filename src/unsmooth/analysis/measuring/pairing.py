"""Which samples of two measurements are the same inputs: only those can be compared one by one."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from unsmooth.analysis.measuring.per_sample import MOST_VALUES
from unsmooth.prose import counted

if TYPE_CHECKING:
    from unsmooth.analysis.measuring.cells import Cell
    from unsmooth.analysis.measuring.measurement import Measurement

Indices = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Pairing:
    """The places of the shared samples in A and in B, or None; and why it is so."""

    places: tuple[Indices, Indices] | None
    why: str

    @property
    def interval(self) -> str:
        """What the intervals of a comparison are."""
        if self.places is None:
            return (
                f"95 % interval of the difference of two means, each number on its own, not paired (Welch): {self.why}"
            )
        return f"95 % interval of the mean difference, each number on its own, paired (Student's t): {self.why}"

    def values(self, a: Measurement, b: Measurement, cell: Cell) -> tuple[npt.NDArray[np.float64], ...]:
        """The values of A and of B on the samples on which both have one: a degenerate sample may have none."""
        assert self.places is not None
        assert a.per_sample is not None
        assert b.per_sample is not None
        first, second = a.per_sample[cell][self.places[0]], b.per_sample[cell][self.places[1]]
        both = np.isfinite(first) & np.isfinite(second)
        return first[both], second[both]


def pair(a: Measurement, b: Measurement, names: tuple[str, str] = ("A", "B")) -> Pairing:
    """Pair the samples of two measurements if those of one are all among those of the other, in whatever order.

    A sample is known by the key of its input (`unsmooth.analysis.measuring.fingerprint`), never by its number alone.
    """
    here, there = a.per_sample, b.per_sample
    if here is None or there is None:
        return Pairing(None, _nothing_kept(a, names[0]) if here is None else _nothing_kept(b, names[1]))
    first, second = match(here.keys, there.keys)
    shared, fewest, most = len(first), min(len(here), len(there)), max(len(here), len(there))
    if shared < fewest or not shared:
        why = "" if shared else " (other data, or made into inputs in another way)"
        both = f"{counted(len(here), 'input')} in {names[0]} and {len(there)} in {names[1]}"
        return Pairing(None, f"{both}, {shared or 'none'} of them the same{why}")
    if fewest == most:
        return Pairing((first, second), f"the same {counted(shared, 'input')} in both")
    larger = names[0] if len(here) == most else names[1]
    return Pairing((first, second), f"on the {counted(shared, 'input')} that both hold, of {most} in {larger}")


def _nothing_kept(measurement: Measurement, name: str) -> str:
    if measurement.samples * len(measurement.cells) > MOST_VALUES:
        count = f"{counted(measurement.samples, 'sample')} × {counted(len(measurement.cells), 'number')}"
        return f"{name} has {count}, too many to keep each (fewer points or samples can be paired)"
    return f"{name} holds means only, no values per sample"


def match(a: npt.NDArray[np.int64], b: npt.NDArray[np.int64]) -> tuple[Indices, Indices]:
    """Where the keys that both hold are in each; the first of equal ones goes with the first.

    >>> match(np.array([7, 8, 7, 9]), np.array([5, 7, 7, 7, 8]))
    (array([0, 1, 2]), array([1, 4, 2]))
    """
    waiting: dict[int, list[int]] = defaultdict(list)
    for place in reversed(range(len(b))):
        waiting[int(b[place])].append(place)
    found = [(place, waiting[key].pop()) for place, key in enumerate(a.tolist()) if waiting.get(key)]
    first, second = np.array(found, dtype=np.intp).reshape(-1, 2).T
    return first, second
