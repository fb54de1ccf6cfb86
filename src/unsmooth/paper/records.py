"""What our own runs reached: the records in `zoo/records`, or those of a folder of runs."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unsmooth.paper.item import Context, Value

RECORD_SCHEMA = "unsmooth-record/1"
VARIANTS = ("plain", "smoothing", "sharpening")
TITLES = {"plain": "ViT-Ti", "smoothing": "ViT-Ti⁺ (smoothing)", "sharpening": "ViT-Ti⁻ (sharpening)"}


def load_records(context: Context, recipe: str = "cifar100") -> list[dict[str, Any]]:
    """Every record of this recipe, below `--runs` or among the shipped ones."""
    from unsmooth.models.load import zoo_folder

    folder = context.runs or zoo_folder() / "records"
    found = []
    for path in sorted(Path(folder).glob("**/*.json")):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (json.JSONDecodeError, UnicodeDecodeError):
            continue
        if isinstance(content, dict) and content.get("schema") == RECORD_SCHEMA:
            found.append(content)
    return [r for r in found if r["recipe"]["name"] == recipe and r["recipe"]["epochs"] == 300]


@dataclass(frozen=True)
class Summary:
    """Mean and standard deviation over seeds; no deviation for one seed."""

    mean: float
    std: float | None
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Summary | None:
        """Of no values, nothing.

        >>> str(Summary.of([1.0, 3.0])), str(Summary.of([2.0]))
        ('2.00 ± 1.41 (n=2)', '2.00 (n=1)')
        """
        if not values:
            return None
        std = statistics.stdev(values) if len(values) > 1 else None
        return cls(statistics.fmean(values), std, len(values))

    def __str__(self) -> str:
        spread = "" if self.std is None else f" ± {self.std:.2f}"
        return f"{self.mean:.2f}{spread} (n={self.count})"


def beside(ours: dict[str, Summary | None], theirs: dict[str, Sequence[float]]) -> dict[str, list[Value]]:
    """For one column: ours, published, difference, and a mark where two variants stand in another order."""
    rows: dict[str, list[Value]] = {}
    for variant in VARIANTS:
        mean, spread = theirs[variant]
        mine = ours.get(variant)
        gap = None if mine is None else f"{mine.mean - mean:+.2f}"
        swapped = _swapped(variant, ours, theirs)
        mark = f"order differs from {', '.join(TITLES[v] for v in swapped)}" if swapped else None
        rows[variant] = [None if mine is None else str(mine), f"{mean:.2f} ± {spread:g}", gap, mark]
    return rows


def _swapped(variant: str, ours: dict[str, Summary | None], theirs: dict[str, Sequence[float]]) -> list[str]:
    found = []
    for other in VARIANTS:
        a, b = ours.get(variant), ours.get(other)
        if a is None or b is None or other == variant:
            continue
        if (a.mean - b.mean) * (theirs[variant][0] - theirs[other][0]) < 0:
            found.append(other)
    return found


def provenance(records: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Where the numbers come from, run by run."""
    keys = ("command", "commit", "seed", "hardware", "date", "minutes")
    return {record["run"]: {key: record.get(key) for key in keys} for record in records}
