"""What an edit costs: strength against smoothness and a task's score, as a typed result."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unsmooth.analysis.about import About
from unsmooth.errors import CheckpointError, OptionError
from unsmooth.prose import counted
from unsmooth.sources.files import write_result
from unsmooth.sources.typed_json import from_plain, to_plain

if TYPE_CHECKING:
    import pandas as pd

    from unsmooth.figures import Drawing

SCHEMA = "unsmooth.sweep/1"
HEADLINE = "hfc_lfc"
DEFINITIONS = {
    "strength": "how far the edit goes, from 0 (the model as it is) to 1",
    "moved": "‖ΔH‖_F / ‖H‖_F over all edited matrices together (drop_sink: of an MLP's output weights)",
    "hfc_lfc": "HFC/LFC after the last block, mean over samples",
    "score": "the task's score, mean over its samples",
    "difference, low, high": "score minus that of the unedited model, with Student's 95 % interval over the task's "
    "samples, paired",
    "price": "difference of the score for each unit by which HFC/LFC rises (or falls), from the unedited model to here",
}


@dataclass(frozen=True)
class SweepSettings:
    """What was asked of a sweep."""

    point: str  # where smoothness is measured
    metrics: tuple[str, ...]
    tokens: tuple[str, ...]
    layers: str = "all"


@dataclass(frozen=True)
class TaskFacts:
    """Which task, and which direction of its score is better."""

    name: str
    unit: str
    better: str  # higher or lower
    definition: str
    samples: int


@dataclass(frozen=True)
class SweepPoint:
    """The model at one strength of an edit; smoothness by token policy and metric."""

    strength: float
    moved: float
    smoothness: dict[str, dict[str, float]]
    score: float
    difference: float = 0.0
    low: float | None = None  # none where a task gives one number for all samples
    high: float | None = None

    @property
    def significant(self) -> bool:
        """Whether the interval of the difference leaves 0 out."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


@dataclass(frozen=True)
class SweptEdit:
    """One edit, as `unsmooth.edit` takes it, at every strength, the unedited model first."""

    name: str
    points: tuple[SweepPoint, ...]

    def price(self, point: SweepPoint, tokens: str) -> float:
        """Difference of the score for each unit by which HFC/LFC changed; nan where it did not."""
        moved = point.smoothness[tokens][HEADLINE] - self.points[0].smoothness[tokens][HEADLINE]
        return point.difference / abs(moved) if moved else math.nan


@dataclass(repr=False, eq=False)
class Sweep:
    """What `sweep` returns: edits of one model at several strengths, each with the resulting HFC/LFC and score."""

    edits: tuple[SweptEdit, ...]
    task: TaskFacts
    about: About[SweepSettings]
    notes: list[str] = field(default_factory=list)

    def policy(self, tokens: str | None = None) -> str:
        """The token policy asked for, or the last, which leaves the most out."""
        known = self.about.settings.tokens
        if tokens is not None and tokens not in known:
            raise OptionError.unknown("token policy", tokens, known)
        return tokens or known[-1]

    def frame(self, tokens: str | None = None) -> pd.DataFrame:
        """One row per edit and strength: smoothness, score, difference with its interval, price."""
        import pandas as pd

        policy = self.policy(tokens)
        rows = [
            {"edit": swept.name, "strength": p.strength, "moved": p.moved, **p.smoothness[policy], "score": p.score,
             "difference": p.difference, "low": p.low, "high": p.high, "price": swept.price(p, policy)}
            for swept in self.edits
            for p in swept.points
        ]  # fmt: skip
        found = pd.DataFrame(rows)
        found.attrs["definitions"] = DEFINITIONS
        return found

    def plot(self, tokens: str | None = None) -> Drawing:
        """Score against HFC/LFC, a curve for every edit."""
        from unsmooth.figures import prices

        return prices(self, tokens)

    def save(self, path: str | Path) -> Path:
        """Write one JSON file, atomically."""
        return write_result(path, json.dumps(self.to_json(), allow_nan=False, indent=1) + "\n")

    def to_json(self) -> dict[str, Any]:
        """The whole sweep as plain data."""
        return {**self.about.heading(SCHEMA, False, self.notes), **to_plain({"task": self.task, "edits": self.edits})}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Sweep:
        """The inverse of to_json; CheckpointError where a value is missing or of another type."""
        edits = tuple(from_plain(SweptEdit, each, f"edits[{i}]") for i, each in enumerate(found.get("edits", ())))
        about = About.from_json(found, SweepSettings)
        _check(edits, about.settings)
        return cls(edits, from_plain(TaskFacts, found.get("task"), "task"), about, list(found.get("notes", ())))

    def __repr__(self) -> str:
        task, policy = self.task, self.policy()
        scored = f"{task.name} ({task.unit}, {task.better} is better), {counted(task.samples, 'sample')}"
        lines = [f"Sweep of {self.about.model.name}: {scored}"]
        for swept in self.edits:
            start, end = swept.points[0], swept.points[-1]
            lines.append(
                f"  {swept.name}: HFC/LFC {start.smoothness[policy][HEADLINE]:.3g} → "
                f"{end.smoothness[policy][HEADLINE]:.3g}, {task.name} {start.score:.4g} → {end.score:.4g}"
            )
        return "\n".join(lines)


def _check(edits: tuple[SweptEdit, ...], settings: SweepSettings) -> None:
    """CheckpointError unless every point has what figures and tables read."""
    if not edits or not settings.tokens:
        raise CheckpointError("a sweep must hold edits and token policies: sweep again")
    for swept in edits:
        if not swept.points or swept.points[0].strength != 0:
            raise CheckpointError(
                f"the edit {swept.name!r} must begin with the unedited model, strength 0: sweep again"
            )
        for point in swept.points:
            for policy in settings.tokens:
                values = point.smoothness.get(policy, {})
                if HEADLINE not in values or not all(map(math.isfinite, (*values.values(), point.score))):
                    raise CheckpointError(
                        f"{swept.name!r}, strength {point.strength}: no finite numbers for {policy!r}"
                    )
