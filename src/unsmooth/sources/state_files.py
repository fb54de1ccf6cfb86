"""Weights from a file, without running anything that is in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from unsmooth.errors import CheckpointError, first_line
from unsmooth.prose import some

_NESTED = ("state_dict_ema", "model_ema", "state_dict", "model", "teacher")


def read_state(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, or of a pickled checkpoint read with `weights_only=True`."""
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"no weights at {path}: expected a .safetensors file or a pickled state dict")
    state = _read_safetensors(path) if path.suffix == ".safetensors" else _read_pickle(path)
    for name in _NESTED:
        if isinstance(state.get(name), Mapping):
            state = dict(state[name])
    tensors = {str(name).removeprefix("module."): t for name, t in state.items() if isinstance(t, Tensor)}
    if not tensors:
        raise CheckpointError(f"{path} holds no tensors: expected a model's weights")
    return tensors


def load_state(model: nn.Module, state: Mapping[str, Tensor], source: str) -> nn.Module:
    """Put tensors into a model; every name and shape must fit."""
    own = model.state_dict()
    missing = [name for name in own if name not in state]
    foreign = [name for name in state if name not in own]
    other = [name for name in own if name in state and own[name].shape != state[name].shape]
    if missing or foreign or other:
        complaints = [
            f"{len(names)} {what} ({some(names, most=3)})"
            for what, names in (
                ("weights it lacks", missing),
                ("weights this model has no place for", foreign),
                ("of another shape", other),
            )
            if names
        ]
        raise CheckpointError(
            f"{source} does not fit {type(model).__name__}: {'; '.join(complaints)}. "
            "Check the model's name, and its options (img_size, num_classes, …)"
        )
    model.load_state_dict(state)
    return model


def _read_safetensors(path: Path) -> dict[str, Any]:
    from safetensors import SafetensorError
    from safetensors.torch import load, load_file

    try:
        named = str(path).encode(errors="replace").decode() == str(path)  # the library opens names in UTF-8 only
        return dict(load_file(path) if named else load(path.read_bytes()))
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is truncated or no safetensors file ({error}): fetch it again") from error


def _read_pickle(path: Path) -> dict[str, Any]:
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged pickle can make its reader fail in any way
        raise CheckpointError(
            f"{path} is truncated, of another kind, or holds more than tensors ({first_line(error)}): "
            "expected a .safetensors file, or a pickle that loads with weights_only=True"
        ) from error
    if not isinstance(state, Mapping):
        raise CheckpointError(f"{path} holds a {type(state).__name__}: expected a mapping from names to tensors")
    return dict(state)
