"""Checkpoints: one safetensors file with everything a run needs to go on, replaced in one step."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from unsmooth.errors import CheckpointError
from unsmooth.models.storage import whole
from unsmooth.sources.files import write_atomically
from unsmooth.sources.trained import CHECKPOINTS
from unsmooth.training.engine.sharding import part_like

if TYPE_CHECKING:
    from unsmooth.training.engine.step import Trainer

SCHEMA = "unsmooth-checkpoint/1"
CURRENT, PREVIOUS = CHECKPOINTS
REMEDY = f"remove it to go on from {PREVIOUS}, if there is one, or from the start"


def save_checkpoint(
    folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, state: dict[str, Any], rank: int = 0
) -> Path:
    """Write model, optimiser, random state and `state` (step, seed, recipe, …); the one before is kept.

    It is whole, so any number of processes can go on from it: what is sharded is gathered, which every process must
    take part in, and the first one writes.
    """
    from safetensors.torch import save

    found: dict[str, Tensor] = {f"model.{name}": t for name, t in model.state_dict().items()}
    for number, parameter in enumerate(_parameters(optimizer)):
        for name, value in optimizer.state[parameter].items():
            found[f"optimizer.{number}.{name}"] = torch.as_tensor(value)
    found["rng.cpu"] = torch.get_rng_state()
    tensors = {}
    for name, tensor in found.items():
        all_of_it = whole(tensor.detach())
        if rank == 0:
            tensors[name] = all_of_it.cpu().contiguous().clone()
    current = folder / CURRENT
    if rank:
        return current
    content = save(tensors, metadata={"schema": SCHEMA, "state": json.dumps(state)})
    with writing(current):
        if current.exists():
            _keep(current, folder / PREVIOUS)
        return write_atomically(current, content)


class Keeper:
    """Writes checkpoints; where one takes seconds, as of a large model, only so often that they cost a twentieth."""

    SMALL, SHARE = 2.0, 0.05  # seconds that nobody minds; of the time

    def __init__(self, folder: Path, rank: int = 0) -> None:
        self.folder, self.rank, self.ended, self.took = folder, rank, -math.inf, 0.0

    def due(self, trainer: Trainer) -> bool:
        """Whether one is worth its time now and this process takes part: all do where the model is sharded."""
        now = self.took <= self.SMALL or time.monotonic() - self.ended >= self.took / self.SHARE
        if trainer.sharded is None:
            return now and self.rank == 0
        said = torch.tensor(float(now), device=trainer.device)
        torch.distributed.broadcast(said, 0)  # clocks differ
        return bool(said)

    def save(self, trainer: Trainer, state: dict[str, Any]) -> None:
        """Write one."""
        started = time.monotonic()
        save_checkpoint(self.folder, trainer.model, trainer.optimizer, state, self.rank)
        self.ended = time.monotonic()
        self.took = self.ended - started


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Whatever a run writes: a full disk is an error that says what is left and what to do."""
    try:
        yield
    except OSError as error:
        why = error.__cause__ if isinstance(error.__cause__, OSError) else error
        full = why.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        raise CheckpointError(
            f"cannot write {path}: {'the disk is full' if full else why}; the last good checkpoint is untouched: "
            f"{'make room' if full else 'repair that'} and run the same command again"
        ) from error


def _keep(current: Path, previous: Path) -> None:
    """A second name for the current file: costs no space until the current one is replaced."""
    draft = previous.with_suffix(".part")
    draft.unlink(missing_ok=True)
    try:
        os.link(current, draft)
    except OSError:  # a file system without hard links
        shutil.copyfile(current, draft)
    os.replace(draft, previous)
    draft.unlink(missing_ok=True)  # where both names are one file already, POSIX's rename does nothing


def remove_drafts(folder: Path) -> None:
    """What a killed process left half-written; whatever else is there stays."""
    for pattern in (".unsmooth-*.part", Path(PREVIOUS).with_suffix(".part").name):
        for draft in folder.glob(pattern):
            draft.unlink(missing_ok=True)


def find_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint of a run's folder."""
    return next((folder / name for name in (CURRENT, PREVIOUS) if (folder / name).exists()), None)


def progress_of(folder: Path) -> str | None:
    """How far the run in this folder is, in words (`epoch 3 of 20`); None without a checkpoint."""
    path = find_checkpoint(folder)
    if path is None:
        return None
    _, state = read_checkpoint(path)
    unit = str(state.get("unit", "epoch"))
    done, total = state.get(unit, 0), state.get("total")
    return f"{unit} {done}" + (f" of {total}" if total else "")


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and state of a checkpoint, or an error that says what to do."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is truncated or not a checkpoint ({error}): {REMEDY}") from error
    if metadata.get("schema") != SCHEMA:
        raise CheckpointError(f"{path} is not ours: expected schema {SCHEMA!r}, got {metadata.get('schema')!r}")
    state = _object(metadata.get("state", ""))
    if not {"step", "epoch"} & state.keys() or "rng.cpu" not in tensors:
        raise CheckpointError(f"{path} is not complete, it lacks its step or random state: {REMEDY}")
    return tensors, state


def _object(text: str) -> dict[str, Any]:
    """The JSON object in a text; an empty one where there is none."""
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


@torch.no_grad()
def restore(tensors: dict[str, Tensor], model: nn.Module, optimizer: torch.optim.Optimizer, path: Path) -> None:
    """Put a checkpoint's tensors back; names or shapes that differ are an error."""
    weights = {name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")}
    parts = model.state_dict()
    try:
        model.load_state_dict({name: part_like(t, parts.get(name, t)) for name, t in weights.items()})
    except RuntimeError as error:
        raise CheckpointError(f"{path} does not fit this model: {error}") from error
    for number, parameter in enumerate(_parameters(optimizer)):
        prefix = f"optimizer.{number}."
        for name, value in tensors.items():
            if name.startswith(prefix):
                key = name.removeprefix(prefix)
                home = parameter.device if key != "step" or parameter.is_cuda else torch.device("cpu")
                part = part_like(value, parameter) if value.dim() else value  # the step's number is nobody's part
                optimizer.state[parameter][key] = part.to(home, copy=True)
    torch.set_rng_state(tensors["rng.cpu"])


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]
