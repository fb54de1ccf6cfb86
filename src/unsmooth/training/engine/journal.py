"""What a run writes down while it trains: one JSON line per look at the model, TensorBoard beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unsmooth.errors import MissingExtraError
from unsmooth.sources.files import write_atomically
from unsmooth.training.engine.checkpoint import writing

LOG = "log.jsonl"


class Journal:
    """The log of one run, counted in `unit`; lines after the one that a resumed run starts from are dropped."""

    def __init__(self, folder: Path, first: int = 0, tensorboard: bool = True, unit: str = "epoch") -> None:
        self.path, self.unit = folder / LOG, unit
        self.rows = [row for row in read_log(folder) if row.get(unit, first) <= first]
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path, "".join(json.dumps(row) + "\n" for row in self.rows))
            self._writer: Any = _tensorboard(folder, first) if tensorboard else None

    def add(self, row: dict[str, Any]) -> None:
        """One look at the model; nested names become TensorBoard tags with slashes."""
        self.rows.append(row)
        with writing(self.path.parent):
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            if self._writer is not None:
                for tag, value in _scalars(row):
                    self._writer.add_scalar(tag, value, row[self.unit])
                self._writer.flush()

    def missing(self, expected: range) -> list[int]:
        """Looks that were taken and are not in the log: their lines were lost before the run went on."""
        return sorted(set(expected) - {row[self.unit] for row in self.rows})

    def close(self) -> None:
        """Release TensorBoard's file."""
        if self._writer is not None:
            with writing(self.path.parent):
                self._writer.close()


def read_log(folder: Path) -> list[dict[str, Any]]:
    """The rows of a run's log, up to the first line that is none: a kill or a full disk cut it short."""
    path = folder / LOG
    if not path.exists():
        return []
    rows = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            break
        if not (isinstance(row, dict) and isinstance(row.get("epoch", row.get("step")), int)):
            break
        rows.append(row)
    return rows


def _tensorboard(folder: Path, first: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise MissingExtraError.needed("tensorboard", "train", "writing TensorBoard logs") from error
    # also from the start: a run killed before its first checkpoint has events already
    return SummaryWriter(str(folder / "tensorboard"), purge_step=first + 1)


def _scalars(row: Mapping[Any, Any], prefix: str = "") -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    for key, value in row.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            found += _scalars(value, f"{name}/")
        elif isinstance(value, list):
            found += _scalars(dict(enumerate(value)), f"{name}/")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found.append((name, float(value)))
    return found
