"""Whose folder is it, and where does its run go on?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unsmooth.errors import CheckpointError
from unsmooth.sources.trained import CONFIG, WEIGHTS, file_hash
from unsmooth.training.engine.checkpoint import find_checkpoint, read_checkpoint, restore
from unsmooth.training.engine.record import RECORD, TrainingRecord
from unsmooth.training.engine.step import Trainer


def resume(state: dict[str, Any], folder: Path, trainer: Trainer) -> dict[str, Any]:
    """Put the newest checkpoint back, if there is one, and return what it says beside its tensors."""
    path = find_checkpoint(folder)
    if path is None:
        return {}
    tensors, found = read_checkpoint(path)
    _refuse_another(state, found, path)
    restore(tensors, trainer.model, trainer.optimizer, path)
    # files of version 0.1 count epochs only
    trainer.done = int(found.get("step", int(found.get("epoch", 0)) * trainer.task.per_unit))
    trainer.task.restore(found)
    return found


def finished(state: dict[str, Any], folder: Path) -> TrainingRecord | None:
    """The record of this run, if it ended here and its model is there; a model of another run is never replaced."""
    try:
        record = TrainingRecord.load(folder)
    except CheckpointError:
        record = None
    weights = folder / WEIGHTS
    if record is not None:
        _refuse_another(state, record.to_json(), folder / RECORD)
    elif weights.exists() and find_checkpoint(folder) is None:
        raise CheckpointError(
            f"{folder} holds a model, but no record or checkpoint of the run that made it: choose another --out"
        )
    if record is None or not weights.exists() or not (folder / CONFIG).exists():
        return None
    if record.weights not in (None, file_hash(weights)):
        if find_checkpoint(folder) is None:
            raise CheckpointError(f"{weights} was changed after it was written: restore it, or choose another --out")
        return None  # the end of the run is written again
    return record


def _refuse_another(state: dict[str, Any], found: dict[str, Any], path: Path) -> None:
    """Every value must agree; older files know neither the hash of their data nor any subset but the first."""
    found = {"subset": 0, **found}
    for key, value in state.items():
        if found.get(key) != value and (key != "data_hash" or found.get(key) is not None):
            raise CheckpointError(
                f"{path} belongs to another run: its {key} is {_short(found.get(key), value)}; "
                "choose another --out or remove the folder"
            )
    if "budget" in found and "budget" not in state:
        raise CheckpointError(f"{path} belongs to another run: its budget is {found['budget']}; choose another --out")


def _short(found: Any, wanted: Any) -> str:
    if isinstance(found, dict) and isinstance(wanted, dict):
        key = next(k for k in {**wanted, **found} if found.get(k) != wanted.get(k))
        return f"with {key}={found.get(key)!r}, not {wanted.get(key)!r}"
    return f"{found!r}, not {wanted!r}"
