"""The record of a run: what was run, by which code, on what, and what came out."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import torch

from unsmooth.errors import CheckpointError
from unsmooth.sources.files import read_json, write_atomically
from unsmooth.sources.provenance import provenance

RECORD = "record.json"
SCHEMA = "unsmooth-record/1"
FAILURE_SCHEMA = "unsmooth-failure/1"
KINDS: dict[str, Any] = {"str": str, "int": int, "float": (int, float), "bool": bool, "None": type(None)}
KINDS |= {"dict": dict, "list": list}


@dataclass(frozen=True)
class TrainingRecord:
    """One finished run. `rows` are its log, one for every look at the model, counted in `unit`s."""

    run: str
    variant: str
    seed: int
    fraction: float
    command: str
    minutes: float
    final: dict[str, Any]
    recipe: dict[str, Any]
    rows: list[dict[str, Any]] = field(repr=False)
    date: str = "unknown"
    commit: str = "unknown"
    hardware: str = "unknown"
    torch: str = "unknown"
    unit: str = "epoch"
    subset: int = 0
    same_steps: bool = False
    std: float | None = None
    budget: str | None = None
    speed: dict[str, Any] = field(default_factory=dict)
    data_hash: str | None = None
    weights: str | None = None  # SHA-256 of the model's file
    missing: list[int] = field(default_factory=list)  # looks whose lines of the log were lost before a resume

    @property
    def end(self) -> dict[str, Any]:
        """The last look at the model; empty where there was none."""
        return self.rows[-1] if self.rows else {}

    def to_json(self) -> dict[str, Any]:
        """Plain values; `load` reads them again."""
        found = {"schema": SCHEMA, **dataclasses.asdict(self)}
        rows, missing, unit = (found.pop(key) for key in ("rows", "missing", "unit"))
        if self.budget is None:
            del found["budget"]
        if missing:
            found[f"missing_{unit}s"] = missing
        return {**found, f"{unit}s": rows}

    def save(self, path: str | Path) -> Path:
        """Write it as one JSON file."""
        return write_atomically(path, json.dumps(self.to_json(), indent=1, ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The record in a file or in a run's folder; CheckpointError where it is not whole."""
        path = Path(path)
        path = path / RECORD if path.is_dir() else path
        return cls.from_json(read_json(path, SCHEMA), str(path))

    @classmethod
    def from_json(cls, content: Mapping[str, Any], source: str = "the record") -> Self:
        """The record that `to_json` wrote; keys of other versions are left out, missing or mistyped ones refused."""
        unit = "epoch" if "epochs" in content or "steps" not in content else "step"
        found = {
            **content,
            "unit": unit,
            "rows": content.get(f"{unit}s"),
            "missing": content.get(f"missing_{unit}s", []),
        }
        values = {}
        for item in dataclasses.fields(cls):
            needed = item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING
            if item.name in found and _fits(found[item.name], str(item.type)):
                values[item.name] = found[item.name]
            elif needed or item.name in content:
                key = f"{unit}s" if item.name == "rows" else item.name
                raise CheckpointError(f"{source} is not a whole record: its {key} is {found.get(item.name)!r}")
        return cls(**values)


def _fits(value: Any, annotation: str) -> bool:
    """Whether a value from JSON has the type that a field is annotated with."""
    for one in annotation.split(" | "):
        if isinstance(value, KINDS[one.partition("[")[0]]) and (not isinstance(value, bool) or one == "bool"):
            return not isinstance(value, list) or all(isinstance(v, dict if "dict" in one else int) for v in value)
    return False


def in_words(scores: Mapping[str, Any]) -> str:
    """The scores of an evaluation in a few words.

    >>> in_words({"loss": 1.5, "accuracy": 0.25}), in_words({"loss": 1.5})
    ('test accuracy 25.00 %', 'test loss 1.500')
    """
    if "sequences" in scores:  # of text: the loss says more
        return f"held-out loss {scores['loss']:.3f}, {100 * scores['accuracy']:.2f} % of hidden tokens right"
    if "accuracy" in scores:
        return f"test accuracy {100 * scores['accuracy']:.2f} %"
    return f"test loss {scores['loss']:.3f}"


def circumstances(device: torch.device | str | None = None, processes: int = 1) -> dict[str, Any]:
    """When, by which code and on what, as records say it."""
    found = provenance(device, processes)
    return {"date": found.date, "commit": found.commit, "hardware": found.hardware, "torch": found.versions["torch"]}


def write_failure(path: Path, content: dict[str, Any]) -> None:
    """That training broke is a result too: what was run, and how it ended."""
    failure = {"schema": FAILURE_SCHEMA, **circumstances(), **content}
    write_atomically(path, json.dumps(failure, indent=1, ensure_ascii=False) + "\n")
