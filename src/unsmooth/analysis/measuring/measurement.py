"""What was measured, and everything needed to say what the numbers mean."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from html import escape
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unsmooth.analysis.about import About
from unsmooth.analysis.measuring.cells import KINDS_OF_POINTS, Cell, Change, kind_of, layer_of
from unsmooth.analysis.measuring.changes import KINDS, READINGS, missing
from unsmooth.analysis.measuring.extremes import Extreme
from unsmooth.analysis.measuring.per_sample import PerSample
from unsmooth.errors import CheckpointError
from unsmooth.metrics.moments import Moments
from unsmooth.metrics.registry import METRICS
from unsmooth.metrics.second_moment import SecondMoment
from unsmooth.prose import counted
from unsmooth.sources.files import write_result

if TYPE_CHECKING:
    import pandas as pd

    from unsmooth.figures import Drawing

SCHEMA = "unsmooth.measurement/1"


@dataclass(frozen=True)
class MeasureSettings:
    """What was asked of a measurement."""

    metrics: tuple[str, ...]
    tokens: tuple[str, ...]
    points: tuple[str, ...]


@dataclass(repr=False, eq=False)  # two results are compared by `compare`; == asks whether they are one object
class Measurement:
    """What `measure` returns: means over samples at every point, with their definitions and their origin.

    `about` holds model, data, definitions, versions and settings; it is saved with the numbers. `per_sample` holds
    the values behind the means, with a key of each sample's input, unless they are too many (`MOST_VALUES`).
    `extremes` holds the token of extreme norm at each point of the residual stream; files of version 0.1 have none.
    """

    cells: dict[Cell, Moments]
    changes: dict[Change, Moments]
    about: About[MeasureSettings]
    partial: bool = False
    notes: list[str] = field(default_factory=list)
    per_sample: PerSample | None = None
    extremes: dict[str, Extreme] = field(default_factory=dict)
    second_moments: dict[tuple[str, str], SecondMoment] = field(default_factory=dict)  # (point, tokens); not saved

    def frame(self, full: bool = False) -> pd.DataFrame:
        """One row per point, metric and token policy, in the order of the forward pass; narrow enough to print.

        `attrs` holds the number of samples and the definitions. `full` adds columns: layer and kind of the point,
        count, the 95 % interval (low, high) and the definition in every row.
        """
        import pandas as pd

        rows = [
            {
                **cell._asdict(),
                **_statistics(moments),
                "layer": layer_of(cell.point),
                "kind": kind_of(cell.point),
                "definition": self.definition(cell.metric, cell.tokens),
            }
            for cell, moments in self.cells.items()
        ]
        return self._printable(pd.DataFrame(rows).astype({"layer": "Int64"}), Cell._fields, full)

    def change_by_kind(self, reading: str = "chain", full: bool = False) -> pd.DataFrame:
        """The paper's Tables 1–3: the mean change of each metric by LayerNorm, Attention and MLP.

        `full` adds columns: count, the 95 % interval (low, high), the reading and the definition.
        """
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
            model = self.about.model
            raise missing(reading, model.placement, model.layers, [cell.point for cell in self.cells])
        order = {kind: i for i, kind in enumerate(KINDS)}
        frame = pd.DataFrame(rows).sort_values("kind", key=lambda s: s.map(order), kind="stable", ignore_index=True)
        return self._printable(frame, ("kind", "metric", "tokens"), full)

    def _printable(self, frame: pd.DataFrame, address: Iterable[str], full: bool) -> pd.DataFrame:
        """Few enough columns for 80 characters unless all are asked for; what they mean travels in `attrs`."""
        shown = frame if full else frame[[*address, "mean", "std"]]
        shown.attrs = {"samples": self.samples, "definitions": self.about.to_json()["definitions"]}
        return shown

    def __repr__(self) -> str:
        model = self.about.model
        lines = [
            f"Measurement of {model.name} on {self.about.data.reference or 'data in memory'}",
            f"  {counted(self.samples, 'sample')}, {counted(model.layers, 'layer')} of width {model.width}"
            + (", partial: it was interrupted" if self.partial else ""),
            *(f"  {_title(m)} ({tokens}): {_plus_minus(a)} → {_plus_minus(b)}" for m, tokens, a, b in self._ends()),
        ]
        lines += [f"  {counted(len(self.notes), 'note')}: .notes"] if self.notes else []
        return "\n".join([*lines, "  .frame(), .change_by_kind(), .plot(), .save(path), .about"])

    def _repr_html_(self) -> str:
        model, data = self.about.model, self.about.data
        head = (
            f"{escape(model.name)} on {escape(data.reference or 'data in memory')}, {counted(self.samples, 'sample')}"
        )
        rows = "".join(
            f"<tr><td>{escape(_title(m))}</td><td>{escape(tokens)}</td><td>{_plus_minus(a)}</td><td>{_plus_minus(b)}</td></tr>"
            for m, tokens, a, b in self._ends()
        )
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.notes)
        return (
            f"<table><caption>{head}</caption><thead><tr><th>metric</th><th>tokens</th><th>at the input</th>"
            f"<th>after the last layer</th></tr></thead><tbody>{rows}</tbody></table>"
            + (f"<ul>{notes}</ul>" if notes else "")
        )

    def _ends(self) -> list[tuple[str, str, Moments, Moments]]:
        """Metric, token policy, and the first and last state of the residual stream, for every metric."""
        stream: dict[tuple[str, str], list[Moments]] = {}
        for cell, moments in self.cells.items():
            if kind_of(cell.point) == "residual" or len(self.about.settings.points) == 1:
                stream.setdefault((cell.metric, cell.tokens), []).append(moments)
        return [(metric, tokens, found[0], found[-1]) for (metric, tokens), found in stream.items()]

    def plot(self, tokens: str | None = None) -> Drawing:
        """The metrics along the depth, as a notebook shows it; `.save("x.pdf")` writes SVG, PNG or PDF."""
        from unsmooth.figures import depth

        return depth({self.about.model.name: self}, tokens=tokens)

    def definition(self, metric: str, tokens: str) -> str:
        """The full definition of a number: metric, token set, aggregation."""
        definitions = self.about.definitions
        return f"{definitions.metrics[metric]}; tokens: {definitions.tokens[tokens]}"

    @property
    def samples(self) -> int:
        """How many samples were measured; within a rank budget, metrics of spectra are of fewer (`samples_of`)."""
        return max((moments.count for moments in self.cells.values()), default=0)

    @property
    def samples_of(self) -> dict[str, int]:
        """By metric, how many samples each of its numbers is a mean over, at least."""
        found: dict[str, int] = {}
        for cell, moments in self.cells.items():
            found[cell.metric] = min(found.get(cell.metric, moments.count), moments.count)
        return found

    def merge(self, other: Measurement) -> Measurement:
        """The measurement of both sets of samples together; both must measure the same things."""
        from unsmooth.analysis.measuring.joining import merge

        return merge(self, other)

    def all_reduce(self) -> Measurement:
        """Every process's samples together, on every process (call it on all of them).

        Numbers are matched by point, metric and tokens; processes that measured other ones are refused on all of them.
        """
        from unsmooth.analysis.measuring.joining import all_reduce

        return all_reduce(self)

    def compare(self, other: Measurement) -> pd.DataFrame:
        """Where two measurements differ; see `unsmooth.compare`."""
        from unsmooth.analysis.measuring.comparison import compare

        return compare(self, other)

    def save(self, path: str | Path, per_sample: bool = True) -> Path:
        """Write one JSON file, atomically; without `per_sample` it is smaller, and `compare` cannot pair samples."""
        content = self.to_json()
        if per_sample and self.per_sample is not None:
            content["per_sample"] = self.per_sample.ordered(self.cells).to_json()
        return write_result(path, json.dumps(content, indent=1, allow_nan=False) + "\n")

    def to_json(self) -> dict[str, Any]:
        """The measurement as plain data: everything but the values per sample."""
        return {
            **self.about.heading(SCHEMA, self.partial, self.notes, samples=self.samples),
            "cells": [
                {**cell._asdict(), "layer": layer_of(cell.point), "kind": kind_of(cell.point), **moments.to_dict()}
                for cell, moments in self.cells.items()
            ],
            "extremes": {point: extreme.to_json() for point, extreme in self.extremes.items()},
            "changes": [{**change._asdict(), **moments.to_dict()} for change, moments in self.changes.items()],
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Measurement:
        """What `save` wrote, as plain data; every value is checked."""
        about = About.from_json(found, MeasureSettings)
        cells = {Cell(**_take(row, Cell)): Moments.from_dict(row) for row in found["cells"]}
        changes = {Change(**_take(row, Change)): Moments.from_dict(row) for row in found["changes"]}
        _checked(cells, changes, about)
        values = found.get("per_sample")
        return cls(
            cells,
            _one_step_each(changes, about.model.placement),
            about,
            bool(found["partial"]),
            [str(note) for note in found["notes"]],
            None if values is None else PerSample.from_json(values, list(cells)),
            {str(point): Extreme.from_json(row) for point, row in found.get("extremes", {}).items()},
        )


def _checked(cells: Mapping[Cell, Moments], changes: Iterable[Change], about: About[MeasureSettings]) -> None:
    """Every number that the settings name is there, no other is, and each has its definition."""
    asked = about.settings
    named = {Cell(*address) for address in product(asked.points, asked.metrics, asked.tokens)}
    if cells.keys() != named:
        raise CheckpointError(
            f"{len(cells.keys() ^ named)} cells are missing, or not of the settings' points and metrics"
        )
    defined = about.definitions
    for what, names, known in (
        ("point", asked.points, {p for p in asked.points if p.rsplit(".", 1)[-1] in KINDS_OF_POINTS}),
        ("metric", asked.metrics, defined.metrics),
        ("token policy", asked.tokens, defined.tokens),
    ):
        if unknown := [name for name in names if name not in known]:
            raise CheckpointError(f"{what} {unknown[0]!r} has no definition")
    if beyond := [p for p in asked.points if (layer_of(p) or 0) >= about.model.layers]:
        raise CheckpointError(f"point {beyond[0]!r} lies beyond the model's {about.model.layers} layers")
    possible = {Change(*address) for address in product(READINGS, KINDS, asked.metrics, asked.tokens)}
    if strange := [change for change in changes if change not in possible]:
        raise CheckpointError(f"a change of {' '.join(map(str, strange[0]))} is none that was measured")


def _one_step_each(changes: dict[Change, Moments], placement: str) -> dict[Change, Moments]:
    """Files before 0.2 credit a post-norm LayerNorm's step to the sub-layer before it; the chain tells them apart."""
    if placement != "post" or any(c.reading == "residual" and c.kind == "LayerNorm" for c in changes):
        return changes
    chain = {change: moments for change, moments in changes.items() if change.reading == "chain"}
    return chain | {change._replace(reading="residual"): moments for change, moments in chain.items()}


def _statistics(moments: Moments) -> dict[str, float]:
    low, high = moments.interval
    return {"mean": moments.mean, "std": moments.std, "count": moments.count, "low": low, "high": high}


def _title(metric: str) -> str:
    """Also of a metric that a file holds and this process does not know."""
    return METRICS[metric].title if metric in METRICS else metric


def _plus_minus(moments: Moments) -> str:
    return f"{moments.mean:.4g}" + (f" ± {moments.std:.2g}" if math.isfinite(moments.std) else "")


def _take(row: Mapping[str, Any], address: type[Any]) -> dict[str, str]:
    return {name: row[name] for name in address._fields}
