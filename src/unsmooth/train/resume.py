"""Whose folder is it, and where does its run go on?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unsmooth.errors import CheckpointError
from unsmooth.train.checkpoint import CURRENT, find_checkpoint, read_checkpoint, restore
from unsmooth.train.journal import LOG, RECORD, read_record
from unsmooth.train.model import CONFIG, WEIGHTS
from unsmooth.train.step import Trainer

OURS = (CURRENT, LOG, RECORD, WEIGHTS, CONFIG)  # what a run writes in one step


def resume(state: dict[str, Any], folder: Path, trainer: Trainer, images: int) -> tuple[int, float]:
    """Epochs that are done already and the minutes they took."""
    path = find_checkpoint(folder)
    if path is None:
        return 0, 0.0
    tensors, found = read_checkpoint(path)
    _refuse_another(state, found, path)
    restore(tensors, trainer.model, trainer.optimizer, path)
    epoch = int(found["epoch"])
    trainer.done.fill_(epoch * (images // trainer.recipe.batch_size))
    return epoch, float(found["minutes"])


def finished(state: dict[str, Any], folder: Path) -> dict[str, Any] | None:
    """The record of this run, if it ended here and its model is there; a model of another run is never replaced."""
    record = read_record(folder)
    if record is not None:
        _refuse_another(state, record, folder / RECORD)
    elif (folder / WEIGHTS).exists() and find_checkpoint(folder) is None:
        raise CheckpointError(
            f"{folder} holds a model, but no record or checkpoint of the run that made it: choose another --out"
        )
    return record if (folder / WEIGHTS).exists() and (folder / CONFIG).exists() else None


def _refuse_another(state: dict[str, Any], found: dict[str, Any], path: Path) -> None:
    """Every value must agree; older files know neither the hash of their data nor any subset but the first."""
    found = {"subset": 0, **found}
    for key, value in state.items():
        if found.get(key) != value and (key != "data_hash" or key in found):
            raise CheckpointError(
                f"{path} belongs to another run: its {key} is {_short(found.get(key), value)}; "
                "choose another --out or remove the folder"
            )


def _short(found: Any, wanted: Any) -> str:
    if isinstance(found, dict) and isinstance(wanted, dict):
        key = next(k for k in {**wanted, **found} if found.get(k) != wanted.get(k))
        return f"with {key}={found.get(key)!r}, not {wanted.get(key)!r}"
    return f"{found!r}, not {wanted!r}"
