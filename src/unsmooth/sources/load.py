"""A model by reference: `timm:NAME`, `hf:NAME_OR_FOLDER[#PART]`, `zoo:NAME`, or the folder that `train` wrote."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch

from unsmooth.errors import CheckpointError, OptionError, UnknownModelError
from unsmooth.models.taps import find
from unsmooth.sources.files import read_json
from unsmooth.sources.loaded import ImageInput, LoadedModel

SCHEMES = ("timm", "hf", "zoo")
TRAINED = "unsmooth-model/1"


def load_model(
    reference: str | Path,
    weights: str | Path | None = None,
    random_init: bool = False,
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
    options: Mapping[str, Any] | None = None,
) -> LoadedModel:
    """Load a model in eval mode, with its tokenizer or image preprocessing.

    `weights` is a local file for a timm or hf model, `options` go to the model's constructor or
    configuration, and `random_init` needs no weights at all.
    """
    if weights is not None and random_init:
        raise OptionError("expected either weights or random_init (--random-init), got both")
    loaded = _load(str(reference), weights, random_init, dict(options or {}))
    loaded.model.eval()
    loaded.model.to(device=device)
    if not getattr(loaded.model, "is_quantized", False):  # there, dtypes are the format: the library refuses others
        loaded.model.to(dtype=dtype)
    if dtype is torch.float64 and find(loaded.model, "config._experts_implementation") == "grouped_mm":
        cast(Any, loaded.model).set_experts_implementation("eager")  # the fused product of experts knows no float64
    return loaded


def zoo_folder() -> Path:
    """Where the models that ship with the project lie: UNSMOOTH_ZOO, or `zoo/` of the project or package."""
    if "UNSMOOTH_ZOO" in os.environ:
        return Path(os.environ["UNSMOOTH_ZOO"])
    package = Path(__file__).resolve().parent.parent
    inside = package / "zoo"
    return inside if inside.is_dir() else package.parent.parent / "zoo"


def _load(reference: str, weights: str | Path | None, random_init: bool, options: dict[str, Any]) -> LoadedModel:
    scheme, colon, name = reference.partition(":")
    if colon and scheme == "timm":
        from unsmooth.sources.load_timm import load_timm

        model, images = load_timm(name, weights, random_init, options)
        return LoadedModel(model, reference, "images", image_input=images)
    if colon and scheme == "hf":
        from unsmooth.sources.load_hf import load_hf

        model, modality, tokenizer, image = load_hf(name, weights, random_init, options)
        return LoadedModel(model, reference, modality, tokenizer, image)
    if weights is not None or random_init or options:
        raise OptionError(f"{reference}: weights, random_init and options are for timm: and hf: models only")
    if colon and scheme == "zoo":
        return _trained(zoo_model(name), reference)
    if Path(reference).exists():
        _refuse_hugging_face(Path(reference))
        return _trained(Path(reference), reference)
    raise OptionError(
        f"expected a model as {', '.join(f'{s}:NAME' for s in SCHEMES)} or the path of a checkpoint, got "
        f"{reference!r}" + (f": no scheme {scheme!r}" if colon else ", and there is no such path")
    )


def _refuse_hugging_face(path: Path) -> None:
    config = path / "config.json"
    if config.is_file() and '"model_type"' in config.read_text(encoding="utf-8", errors="replace"):
        raise OptionError(f"{path} is a Hugging Face folder, not one that train wrote: give it as hf:{path}")


def zoo_model(name: str) -> Path:
    """The folder of a shipped model; a name is one of those that are there, never a path that leads out of the zoo."""
    have = sorted(path.parent.name for path in zoo_folder().glob("*/config.json"))
    if name in have:
        return zoo_folder() / name
    near = difflib.get_close_matches(name, have, n=1)
    raise UnknownModelError(
        f"no model zoo:{name}; available: {', '.join(have) or 'none yet'}"
        + (f". Did you mean zoo:{near[0]}?" if near else "")
    )


def _trained(path: Path, reference: str) -> LoadedModel:
    """A plain model as `train` saves it: config.json and model.safetensors in one folder."""
    from unsmooth.sources.load_timm import create
    from unsmooth.sources.state_files import load_state, read_state

    folder = path if path.is_dir() else path.parent
    config = read_json(folder / "config.json", TRAINED)
    if config.get("library") != "timm" or "name" not in config or "arguments" not in config:
        raise CheckpointError(f"{folder / 'config.json'}: expected a timm model's name and arguments")
    if "fix" in config:
        raise CheckpointError(
            f"{folder} holds a model with the published fix {config['fix']!r}, which plain timm cannot run: use "
            "`unsmooth evaluate`, or `unsmooth.training.load_trained` in Python"
        )
    file = folder / "model.safetensors"
    model = load_state(create(config["name"], config["arguments"]), read_state(file), str(file))
    images = ImageInput(size=int(config["arguments"]["img_size"]), mean=tuple(config["mean"]), std=tuple(config["std"]))
    return LoadedModel(model, reference, "images", image_input=images)
