"""What was measured, and everything needed to say what the numbers mean."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from unsmooth.analysis import extremes
from unsmooth.analysis.changes import KINDS, READINGS, missing
from unsmooth.analysis.extremes import Extreme
from unsmooth.analysis.per_sample import PerSample, all_gather
from unsmooth.errors import UnsmoothError
from unsmooth.metrics.moments import Moments, all_reduce
from unsmooth.sources.files import read_json, undamaged, write_result

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = "unsmooth.measurement/1"


class Cell(NamedTuple):
    """The address of one number: where, which metric, which tokens."""

    point: str
    metric: str
    tokens: str


class Change(NamedTuple):
    """The address of one change: which reading, which kind of layer, which metric, which tokens."""

    reading: str
    kind: str
    metric: str
    tokens: str


@dataclass
class Measurement:
    """Means over samples at every point, with their definitions and their origin.

    `about` holds model, data, definitions, versions and settings; it is saved with the numbers. `per_sample` holds
    the values behind the means, with a key of each sample's input, unless they are too many (`MOST_VALUES`).
    `extremes` holds the token of extreme norm at each point of the residual stream; files of version 0.1 have none.
    """

    cells: dict[Cell, Moments]
    changes: dict[Change, Moments]
    about: dict[str, Any]
    partial: bool = False
    notes: list[str] = field(default_factory=list)
    per_sample: PerSample | None = None
    extremes: dict[str, Extreme] = field(default_factory=dict)

    def frame(self) -> pd.DataFrame:
        """One row per point, metric and token policy, in the order of the forward pass."""
        import pandas as pd

        rows = [
            {
                "point": cell.point,
                "layer": layer_of(cell.point),
                "kind": kind_of(cell.point),
                "metric": cell.metric,
                "tokens": cell.tokens,
                **_statistics(moments),
                "definition": self.definition(cell.metric, cell.tokens),
            }
            for cell, moments in self.cells.items()
        ]
        return pd.DataFrame(rows).astype({"layer": "Int64"})

    def change_by_kind(self, reading: str = "chain") -> pd.DataFrame:
        """The paper's Tables 1–3: the mean change of each metric by LayerNorm, Attention and MLP."""
        import pandas as pd

        rows = [
            {
                "kind": change.kind,
                "metric": change.metric,
                "tokens": change.tokens,
                **_statistics(moments),
                "reading": reading,
                "definition": f"{READINGS[reading]}; {self.definition(change.metric, change.tokens)}",
            }
            for change, moments in self.changes.items()
            if change.reading == reading
        ]
        if not rows:
            model = self.about["model"]
            raise missing(reading, model["placement"], model["layers"], [cell.point for cell in self.cells])
        order = {kind: i for i, kind in enumerate(KINDS)}
        return pd.DataFrame(rows).sort_values("kind", key=lambda s: s.map(order), kind="stable", ignore_index=True)

    def definition(self, metric: str, tokens: str) -> str:
        """The full definition of a number: metric, token set, aggregation."""
        definitions = self.about["definitions"]
        return f"{definitions['metrics'][metric]}; tokens: {definitions['tokens'][tokens]}"

    @property
    def samples(self) -> int:
        """How many samples every number is a mean over."""
        return max((moments.count for moments in self.cells.values()), default=0)

    def merge(self, other: Measurement) -> Measurement:
        """The measurement of both sets of samples together; both must measure the same things."""
        if self.cells.keys() != other.cells.keys() or self.about["definitions"] != other.about["definitions"]:
            raise UnsmoothError(
                "two measurements can be merged only if they hold the same points, metrics and token policies: "
                f"got {len(self.cells)} and {len(other.cells)} cells, "
                f"{len(self.cells.keys() ^ other.cells.keys())} of them in one only"
            )
        return Measurement(
            {cell: Moments().merge(m).merge(other.cells[cell]) for cell, m in self.cells.items()},
            {change: Moments().merge(m).merge(other.changes[change]) for change, m in self.changes.items()},
            self.about,
            self.partial or other.partial,
            list(dict.fromkeys(self.notes + other.notes)),
            self.per_sample.merge(other.per_sample) if self.per_sample and other.per_sample else None,
            {p: e.merge(other.extremes[p]) for p, e in self.extremes.items() if p in other.extremes},
        )

    def all_reduce(self) -> Measurement:
        """Every process's samples together, on every process (call it on all of them)."""
        return Measurement(
            dict(zip(self.cells, all_reduce(list(self.cells.values())), strict=True)),
            dict(zip(self.changes, all_reduce(list(self.changes.values())), strict=True)),
            self.about,
            self.partial,
            self.notes,
            all_gather(self.per_sample),
            extremes.all_gather(self.extremes),
        )

    def compare(self, other: Measurement) -> pd.DataFrame:
        """Where two measurements differ; see `unsmooth.compare`."""
        from unsmooth.analysis.comparison import compare

        return compare(self, other)

    def save(self, path: str | Path, per_sample: bool = True) -> Path:
        """Write one JSON file, atomically; without `per_sample` it is smaller, and `compare` cannot pair samples."""
        content = self.to_json()
        if per_sample and self.per_sample is not None:
            content["per_sample"] = self.per_sample.to_json()
        return write_result(path, json.dumps(content, indent=1, allow_nan=False) + "\n")

    def to_json(self) -> dict[str, Any]:
        """The measurement as plain data: everything but the values per sample."""
        return {
            "schema": SCHEMA,
            "partial": self.partial,
            "samples": self.samples,
            **self.about,
            "notes": self.notes,
            "cells": [
                {
                    **cell._asdict(),
                    "layer": layer_of(cell.point),
                    "kind": kind_of(cell.point),
                    **moments.to_dict(),
                }
                for cell, moments in self.cells.items()
            ],
            "extremes": {point: extreme.to_json() for point, extreme in self.extremes.items()},
            "changes": [{**change._asdict(), **moments.to_dict()} for change, moments in self.changes.items()],
        }


def load_measurement(path: str | Path) -> Measurement:
    """Read what `Measurement.save` wrote."""
    found = read_json(path, SCHEMA)
    with undamaged(path):
        cells = {Cell(**_take(row, Cell)): Moments.from_dict(row) for row in found.pop("cells")}
        changes = {Change(**_take(row, Change)): Moments.from_dict(row) for row in found.pop("changes")}
        partial, notes, values = found.pop("partial"), found.pop("notes"), found.pop("per_sample", None)
        far = {point: Extreme.from_json(row) for point, row in found.pop("extremes", {}).items()}
        _ = found["model"], found["data"], found["settings"], found["definitions"]
    per_sample = None if values is None else PerSample.from_json(values, list(cells))
    about = {key: value for key, value in found.items() if key not in ("schema", "samples")}
    return Measurement(cells, _one_step_each(changes, about["model"]), about, partial, notes, per_sample, far)


def _one_step_each(changes: dict[Change, Moments], model: Mapping[str, Any]) -> dict[Change, Moments]:
    """Files before 0.2 credit a post-norm LayerNorm's step to the sub-layer before it; the chain tells them apart."""
    if model.get("placement") != "post" or any(c.reading == "residual" and c.kind == "LayerNorm" for c in changes):
        return changes
    chain = {change: moments for change, moments in changes.items() if change.reading == "chain"}
    return chain | {change._replace(reading="residual"): moments for change, moments in chain.items()}


def layer_of(point: str) -> int | None:
    """The index of the block a point lies in.

    >>> layer_of("blocks.3.attn"), layer_of("embed")
    (3, None)
    """
    parts = point.split(".")
    return int(parts[1]) if len(parts) == 3 else None


def kind_of(point: str) -> str:
    """What a point is: residual stream, a normalisation's output, or what a sub-layer adds."""
    return _KINDS[point.rsplit(".", 1)[-1]]


_KINDS = {
    **dict.fromkeys(("embed", "pre", "mid", "post"), "residual"),
    **dict.fromkeys(("attn_sum", "mlp_sum"), "sum"),
    **dict.fromkeys(("norm1", "norm2", "final_norm"), "norm"),
    "attn": "attention",
    "mlp": "mlp",
}


def _statistics(moments: Moments) -> dict[str, float]:
    low, high = moments.interval
    return {"mean": moments.mean, "std": moments.std, "count": moments.count, "low": low, "high": high}


def _take(row: Mapping[str, Any], address: type[Any]) -> dict[str, str]:
    return {name: row[name] for name in address._fields}
