"""What a run writes down: one JSON line per logged epoch, TensorBoard beside it, one record at the end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from unsmooth.errors import CheckpointError, MissingExtraError
from unsmooth.sources.files import read_json, write_atomically
from unsmooth.sources.provenance import provenance
from unsmooth.training.checkpoint import writing

LOG = "log.jsonl"
RECORD = "record.json"
RECORD_SCHEMA = "unsmooth-record/1"
FAILURE_SCHEMA = "unsmooth-failure/1"


class Journal:
    """The log of one run; lines after the epoch that a resumed run starts from are dropped."""

    def __init__(self, folder: Path, first_epoch: int = 0, tensorboard: bool = True) -> None:
        self.path = folder / LOG
        self.rows = [row for row in read_log(folder) if row["epoch"] <= first_epoch]
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path, "".join(json.dumps(row) + "\n" for row in self.rows))
            self._writer: Any = _tensorboard(folder, first_epoch) if tensorboard else None

    def add(self, row: dict[str, Any]) -> None:
        """One logged epoch; nested names become TensorBoard tags with slashes."""
        self.rows.append(row)
        with writing(self.path.parent):
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            if self._writer is not None:
                for tag, value in _scalars(row):
                    self._writer.add_scalar(tag, value, row["epoch"])
                self._writer.flush()

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
        if not (isinstance(row, dict) and isinstance(row.get("epoch"), int)):
            break
        rows.append(row)
    return rows


def _tensorboard(folder: Path, first_epoch: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise MissingExtraError.needed("tensorboard", "train", "writing TensorBoard logs") from error
    # also from the start: a run killed before its first checkpoint has events already
    return SummaryWriter(str(folder / "tensorboard"), purge_step=first_epoch + 1)


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


def read_record(folder: Path) -> dict[str, Any] | None:
    """The record that a finished run left in its folder, if it is there and whole."""
    try:
        return read_json(folder / RECORD, RECORD_SCHEMA)
    except CheckpointError:
        return None


def circumstances(device: torch.device | None = None) -> dict[str, str]:
    """When, by which code and on what."""
    found = provenance(device)
    return {"date": found.date, "commit": found.commit, "hardware": found.hardware, "torch": found.versions["torch"]}


def write_record(path: Path, content: dict[str, Any], schema: str = RECORD_SCHEMA) -> dict[str, Any]:
    """The record of a run: what was run, on what, and what came out."""
    record = {"schema": schema, **circumstances(), **content}
    write_atomically(path, json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    return record
