"""Folders that `train` wrote and models of the zoo: found, checked, read and written here and nowhere else.

A model with a published fix needs `control` to be built, so this room stands above that one; `control` knows models
only. What a folder says is never trusted: its configuration may come from anybody.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import nn

from unsmooth.errors import CheckpointError, OptionError, UnknownModelError
from unsmooth.sources.files import NO_MODEL_FILE, read_json, write_atomically
from unsmooth.sources.state_files import load_state, read_state

SCHEMA = "unsmooth-model/1"
TEXT_SCHEMA, TEXT_ABOUT = "unsmooth-text/1", "unsmooth.json"  # beside a text model's own Hugging Face files
WEIGHTS, CONFIG = "model.safetensors", "config.json"
CHECKPOINTS = ("checkpoint.safetensors", "previous.safetensors")  # of a run that may not be finished
MILESTONES = "checkpoints"  # of a run that keeps models on its way, a folder each
WANTED = "expected zoo:NAME or the folder of a model that `unsmooth train` wrote"
# What a configuration may pass on to timm. Others of timm's arguments load files (checkpoint_path) or fetch them.
ARGUMENTS: Mapping[str, type] = MappingProxyType(
    dict.fromkeys(("img_size", "patch_size", "embed_dim", "depth", "num_heads", "num_classes", "reg_tokens"), int)
    | dict.fromkeys(("qkv_bias", "qk_norm", "class_token", "fc_norm"), bool)
    | dict.fromkeys(("mlp_ratio", "init_values", "drop_path_rate"), float)
    | {"global_pool": str}
)
LARGEST = {"depth": 1_000}  # of any other number 100,000
MAY_BE_ZERO = frozenset({"num_classes", "reg_tokens"})


class Trained(NamedTuple):
    """A model in evaluation mode and the configuration of its folder."""

    model: nn.Module
    config: dict[str, Any]


def zoo_folder() -> Path:
    """Where the models that ship with the project lie: UNSMOOTH_ZOO, or `zoo/` of the project or package."""
    if "UNSMOOTH_ZOO" in os.environ:
        return Path(os.environ["UNSMOOTH_ZOO"])
    package = Path(__file__).resolve().parent.parent
    inside = package / "zoo"
    return inside if inside.is_dir() else package.parent.parent / "zoo"


def trained_folder(reference: str | Path) -> Path:
    """The folder behind `zoo:NAME`, a path, or the path of the weights in it."""
    scheme, colon, name = str(reference).partition(":")
    if colon and scheme == "zoo":
        return _zoo_model(name)
    if colon and scheme in ("timm", "hf"):
        raise OptionError(f"{reference} was not trained here: {WANTED}")
    folder = Path(reference).parent if os.path.isfile(reference) else Path(reference)
    if os.path.isfile(folder / CONFIG):
        return folder
    if any(os.path.isfile(folder / name) for name in CHECKPOINTS):
        raise CheckpointError(f"the run in {folder} is not finished: run its command again, it goes on by itself")
    if os.path.isfile(reference):
        raise CheckpointError(f"{reference} is a file, and none that train wrote: {NO_MODEL_FILE}")
    raise CheckpointError(f"no model at {str(reference)!r}, for there is no file {folder / CONFIG}: {WANTED}")


def is_text(folder: Path) -> bool:
    """Whether `train` wrote a text model there: a Hugging Face folder and our file; checks its weights."""
    if not (folder / TEXT_ABOUT).is_file():
        return False
    about = read_json(folder / TEXT_ABOUT, TEXT_SCHEMA)
    _check_hash(folder / WEIGHTS, about.get("weights"), TEXT_ABOUT)
    return True


def _check_hash(file: Path, expected: object, where: str) -> None:
    if expected not in (None, file_hash(file)):
        raise CheckpointError(
            f"{file} was changed after it was written: its SHA-256 is not the one in {where}; fetch or train it again"
        )


def zoo_models() -> dict[str, bool]:
    """The names of the models in the zoo, and whether each takes text; the others take images."""
    folders = sorted(path.parent for path in zoo_folder().glob(f"*/{CONFIG}"))
    return {folder.name: (folder / TEXT_ABOUT).is_file() for folder in folders}


def _zoo_model(name: str) -> Path:
    """By its name in the zoo's list, so that no name leads out of the zoo; else from the hub."""
    from unsmooth.sources.hub import fetch_zoo_model

    have = list(zoo_models())
    if name in have:
        return zoo_folder() / name
    fetched, why = fetch_zoo_model(name)
    if fetched is not None and (fetched / CONFIG).is_file():
        return fetched
    near = difflib.get_close_matches(name, have, n=1)
    raise UnknownModelError(
        f"no model zoo:{name}; available: {', '.join(have) or 'none yet'}"
        + (f". Did you mean zoo:{near[0]}?" if near else "")
        + (f" ({why})" if why else "")
    )


def read_config(folder: Path) -> dict[str, Any]:
    """The configuration of a trained folder, every value of the kind that `train` writes."""
    path = folder / CONFIG
    if '"model_type"' in _text(path) and '"schema"' not in _text(path):
        raise OptionError(f"{folder} is a Hugging Face folder, not one that train wrote: give it as hf:{folder}")
    config = read_json(path, SCHEMA)
    name, arguments = config.get("name"), config.get("arguments")
    if config.get("library") != "timm" or not isinstance(name, str) or not isinstance(arguments, dict):
        raise CheckpointError(f"{path}: expected a timm model's name and arguments")
    if not re.fullmatch(r"[A-Za-z0-9_.]+", name):
        raise CheckpointError(f"{path}: {name!r} is not the name of a timm model that train builds: train again")
    for key, value in arguments.items():
        if not _allowed(key, value):
            raise CheckpointError(
                f"{path}: the argument {key}={value!r} is not one that train writes: expected only "
                f"{', '.join(ARGUMENTS)}, with their types"
            )
    for key, least in (("mean", -math.inf), ("std", 0.0)):
        values = config.get(key)
        if not (isinstance(values, list) and len(values) == 3 and all(_number(v) and v > least for v in values)):
            raise CheckpointError(f"{path}: expected {key} as three numbers, got {values!r}")
    if not _number(crop := config.get("crop", 1.0)) or not 0 < crop <= 1:
        raise CheckpointError(f"{path}: expected crop as a share of the image, got {crop!r}")
    if not isinstance(config.get("recipe") or {}, dict) or not isinstance(config.get("class_names") or [], list):
        raise CheckpointError(f"{path}: its recipe or class_names are not what train writes: train again")
    return config


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error.strerror or error}): mend it") from error


def _allowed(key: str, value: Any) -> bool:
    kind = ARGUMENTS.get(key)
    if kind in (bool, str):
        return isinstance(value, bool) if kind is bool else value in ("", "avg", "token", "map")
    if kind is None or not _number(value) or not 0 <= value <= LARGEST.get(key, 100_000):
        return False
    return kind is float or (isinstance(value, int) and (value > 0 or key in MAY_BE_ZERO))


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def load_trained(reference: str | Path) -> Trained:
    """The model of `zoo:NAME` or of a folder that `train` wrote, with its fix if it has one, in float32."""
    from unsmooth.control import Variant
    from unsmooth.sources.load_timm import create, outline

    folder = trained_folder(reference)
    config, file = read_config(folder), folder / WEIGHTS
    state = read_state(file)
    _check_hash(file, config.get("weights"), CONFIG)
    try:
        variant = Variant.parse(str(config.get("variant", "plain")))
        described = sum(p.numel() for p in outline(config["name"], config["arguments"]).parameters())
        if described > 2 * sum(t.numel() for t in state.values()):  # before memory is taken for it
            raise CheckpointError(f"{folder / CONFIG} describes a model far larger than {WEIGHTS}: fetch both again")
        model = create(config["name"], config["arguments"])
        if variant.fix is not None:  # its learned weights are part of the model
            variant.apply(model)
    except (OptionError, UnknownModelError, RuntimeError) as error:
        raise CheckpointError(f"{folder / CONFIG} describes no model that can be built: {error}") from error
    load_state(model, state, str(file))
    return Trained(model.eval(), config)


def save_trained(model: nn.Module, folder: str | Path, config: dict[str, Any], half: bool = True) -> str:
    """Write a plain model: float16 weights and what is needed to build it again; returns the hash of the weights."""
    from safetensors.torch import save

    folder, kind = Path(folder), torch.float16 if half else torch.float32
    weights = {name: t.detach().to("cpu", kind).contiguous() for name, t in model.state_dict().items()}
    if not all(t.isfinite().all() for t in weights.values()):  # beyond float16: rare, and worth the space
        weights = {name: t.detach().to("cpu", torch.float32).contiguous() for name, t in model.state_dict().items()}
    content = save(weights, metadata={"format": "pt"})
    digest = hashlib.sha256(content).hexdigest()
    write_atomically(folder / WEIGHTS, content)
    written = {"schema": SCHEMA, "library": "timm", **config, "weights": digest}
    write_atomically(folder / CONFIG, json.dumps(written, indent=1, ensure_ascii=False) + "\n")
    return digest


def file_hash(path: Path) -> str | None:
    """SHA-256 of a file's bytes; None where there is no file."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
