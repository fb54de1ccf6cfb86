"""Hugging Face models by name or folder; remote code is never run."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from textwrap import shorten
from types import MappingProxyType
from typing import Any, cast

import torch
from torch import nn

from unsmooth.errors import (
    CheckpointError,
    MissingExtraError,
    NoRowError,
    OptionError,
    UnknownModelError,
    UnsmoothError,
    first_line,
)
from unsmooth.models.registry import blocks_of, match
from unsmooth.models.taps import find
from unsmooth.sources.files import IN_PYTHON, NO_MODEL_FILE, read_object
from unsmooth.sources.loaded import IMAGENET_MEAN, IMAGENET_STD, ImageInput, LoadedModel
from unsmooth.sources.parts import modality_of, split_mark, take_part
from unsmooth.sources.state_files import load_state, read_state

_INTERPOLATION = {0: "nearest", 2: "bilinear", 3: "bicubic"}
_TEXT = "The quick brown fox jumps over 13 lazy dogs; C=O."
LARGEST_SIDE = 1 << 14
_TIMM_FILES = ("pretrained", "pretrained_cfg", "pretrained_cfg_overlay")
#: Of a pair of towers, the one that is loaded unless a part is named.
_VISION_TOWERS = {"clip": "CLIPVisionModel", "siglip": "SiglipVisionModel"}


def load_hf(
    reference: str,
    name: str,
    weights: str | Path | None = None,
    random_init: bool = False,
    options: Mapping[str, Any] = MappingProxyType({}),
    dtype: torch.dtype | None = None,
    device_map: Any = None,
) -> LoadedModel:
    """A model of transformers with its tokenizer or image preprocessing; `options` change the configuration.

    `name` may end in `@` and a branch, tag or commit, and in `#` and the path of a part (`#model.language_model`),
    which then is the model. `device_map` spreads the weights while they are read, in `dtype` (None: as stored).
    """
    try:
        import transformers
    except ImportError as error:
        raise MissingExtraError.needed("transformers", "text", f"loading hf:{name}") from error
    name, part = split_mark(name, "#")
    name, revision = split_mark(name, "@")
    if revision and os.path.isdir(name):
        raise OptionError(
            f"hf:{name}@{revision}: a folder has no revisions; leave @{revision} out, or name a repository"
        )
    at = {"revision": revision} if revision else {}
    with _quiet(transformers):
        config = _config(transformers, name, options, at)
        classes = _classes(transformers, config, whole=bool(part))
        if random_init or weights is not None:
            model = _from_config(transformers, config, classes[0])
            if weights is not None:
                load_state(model, read_state(weights), str(weights))
        else:
            spread = {} if device_map is None else {"device_map": device_map, "dtype": dtype or "auto"}
            model = _from_pretrained(transformers, name, config, classes, at | spread)
        if part:
            model = take_part(model, part, f"hf:{name}")
        elif getattr(config, "is_encoder_decoder", False):
            model = cast(Any, model).get_encoder()  # what has rows; called whole, the model would want targets too
        modality = modality_of(model, config, f"hf:{name}")
        tokenizer = _tokenizer(transformers, name, at) if modality == "text" else None
        images = _image_input(name, config, at) if modality == "images" else None
    return LoadedModel(model, reference, modality, tokenizer, images)


def _config(transformers: Any, name: str, options: Mapping[str, Any], at: Mapping[str, Any]) -> Any:
    if os.path.isfile(os.path.join(name, "adapter_config.json")):  # transformers would fetch the model that it names
        raise CheckpointError(
            f"{name} holds an adapter beside or instead of a model: merge it into the weights (merge_and_unload), and "
            "save the model in a folder of its own"
        )
    if os.path.isdir(name) and not os.path.isfile(os.path.join(name, "config.json")):
        raise CheckpointError(f"{name} has no config.json: expected a folder that save_pretrained wrote")
    try:
        _refuse_other_sources(name, transformers.PreTrainedConfig.get_config_dict(name, **at)[0])
        transformers.AutoConfig.from_pretrained(name, trust_remote_code=False, **at)
    except UnsmoothError:
        raise
    except Exception as error:  # missing or damaged files, and values that a configuration does not take: any class
        raise _not_found(name, error) from error
    try:
        config, unused = transformers.AutoConfig.from_pretrained(
            name, trust_remote_code=False, return_unused_kwargs=True, **at, **options
        )
    except Exception as error:
        reason = " ".join(str(error).split())
        raise OptionError(f"hf:{name} does not take these options {dict(options)}: {reason}") from error
    if unused:
        raise OptionError(
            f"hf:{name} ({type(config).__name__}) has no option {', '.join(map(repr, unused))}: leave it out"
        )
    return config


def _refuse_other_sources(name: str, found: Any, place: str = "config.json") -> None:
    """CheckpointError where a configuration names weights or code that lie elsewhere: timm reads a `checkpoint_path`
    as a pickle, transformers runs an attention kernel that is a repository."""
    pairs = found.items() if isinstance(found, Mapping) else enumerate(found) if isinstance(found, list) else ()
    for key, value in pairs:
        _refuse_other_sources(name, value, f"{place}: {key}")
        sourced = isinstance(value, str) and (
            value.startswith(("hf-hub:", "hf_hub:", "local-dir:"))
            or ("/" in value and str(key).endswith("attn_implementation"))
        )
        if sourced or key == "checkpoint_path" or (key in _TIMM_FILES and place.endswith(("model_args", "_kwargs"))):
            raise CheckpointError(
                f"{name} ({place}) has {key} = {value!r}: a configuration must not name other files or repositories; "
                "remove it if you trust the rest"
            )


def _not_found(name: str, error: Exception) -> CheckpointError | UnknownModelError:
    if os.path.isdir(name):
        own_code = "custom code" in str(error) or "trust_remote_code" in str(error)
        hint = f". Code of a model's folder is never run here: {IN_PYTHON}" if own_code else ""
        return CheckpointError(f"{name} cannot be read as a Hugging Face model: {first_line(error)}{hint}")
    if os.path.isfile(name):
        return CheckpointError(f"{name} is a file: {NO_MODEL_FILE}")
    if name.startswith((".", "/", "~")):
        return CheckpointError(f"no folder at {name}: expected one that save_pretrained wrote")
    return UnknownModelError(
        f"hf:{name} is no folder here, and its files are neither in the local cache nor could they be fetched "
        f"({first_line(error)}). Check the name; without a network give a folder (hf:FOLDER), or one with a "
        "config.json and --random-init (random_init=True)"
    )


def _classes(transformers: Any, config: Any, whole: bool) -> list[Any]:
    """The class that wrote the weights, then the bare backbone; of a CLIP or SigLIP pair, the vision tower."""
    if config.model_type in _VISION_TOWERS and not whole:
        return [getattr(transformers, _VISION_TOWERS[config.model_type])]
    architectures = config.architectures or ()
    if not isinstance(architectures, list | tuple):
        raise CheckpointError(f"config.json: expected architectures as a list of names, got {architectures!r}: mend it")
    named = (getattr(transformers, str(architecture), None) for architecture in architectures)
    models = [make for make in named if isinstance(make, type) and issubclass(make, transformers.PreTrainedModel)]
    return [*models, transformers.AutoModel]


def _is_tower(make: Any) -> bool:
    return make.__name__ in _VISION_TOWERS.values()


def _from_config(transformers: Any, config: Any, make: Any) -> nn.Module:
    inner = getattr(config, "vision_config", config) if _is_tower(make) else config
    try:
        model: nn.Module = make.from_config(inner) if make is transformers.AutoModel else make(inner)
    except Exception as error:  # sizes that do not go together, or a configuration that no model has
        raise UnknownModelError(
            f"no model can be made from the configuration {type(config).__name__} ({type(error).__name__}: {error})"
        ) from error
    return model


def _from_pretrained(
    transformers: Any, name: str, config: Any, classes: list[Any], how: Mapping[str, Any]
) -> nn.Module:
    """The first class all of whose weights are there, else the backbone if only parts outside its blocks lack."""
    problem = ""
    for make in classes:
        own = None if _is_tower(make) else config
        try:
            model, report = make.from_pretrained(
                name, config=own, trust_remote_code=False, output_loading_info=True, **{"dtype": "auto", **how}
            )
        except Exception as error:  # transformers lets errors of many libraries through
            # some list every weight of the model
            problem = f"{type(error).__name__}: {shorten(first_line(error), 300)}"
            continue
        lacking = sorted(report["missing_keys"])
        if not lacking or (make is transformers.AutoModel and not _in_blocks(model, lacking)):
            return model
        problem = f"{len(lacking)} weights are missing, for example {', '.join(lacking[:3])}"
    raise CheckpointError(
        f"the weights of hf:{name} cannot be loaded ({problem}): the file is truncated, of another kind, or of "
        "another model, or the options given do not fit them; without a network give a folder (hf:FOLDER), or take "
        "--random-init (random_init=True)"
    )


def _in_blocks(model: nn.Module, names: list[str]) -> bool:
    """Whether one of these parameters belongs to a block, that is, to what gets measured."""
    try:
        _, backbone, family = match(model)
        blocks: list[nn.Module] = blocks_of(family, backbone)
    except NoRowError:  # its row is found later, and its blocks stand in some list
        blocks = [part for part in model.modules() if isinstance(part, nn.ModuleList | nn.Sequential)]
    own = {id(p) for block in blocks for p in block.parameters()}
    lacking = set(names)
    return any(id(p) in own for name, p in model.named_parameters() if name in lacking)


def _tokenizer(transformers: Any, name: str, at: Mapping[str, Any]) -> Any:
    """The tokenizer beside the weights; None if there is none that its library can read."""
    # Absent or incomplete files raise many kinds of errors, and a tokenizer that wants boxes too refuses bare text;
    # text is then refused by name.
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(name, trust_remote_code=False, **at)
        ids = set(tokenizer(_TEXT, add_special_tokens=False)["input_ids"])
        tokenizer(_TEXT)  # with special tokens, which a damaged file can make impossible
        special = len(tokenizer.all_special_ids)  # one that lacks its own unknown token looks for it for ever
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # a panic of the Rust library is no Exception
        return None
    # Without its vocabulary file a tokenizer may still be made, of special tokens only: all text is unknown to it.
    return tokenizer if len(tokenizer) > special and _knows(tokenizer, ids) else None


def _knows(tokenizer: Any, ids: set[int]) -> bool:
    pieces = tokenizer.convert_ids_to_tokens(sorted(ids - set(tokenizer.all_special_ids)))
    return any(character.isalnum() for piece in pieces for character in str(piece))


def _image_input(name: str, config: Any, at: Mapping[str, Any]) -> ImageInput:
    found = _preprocessor(name, at)
    size, cut = found.get("size"), found.get("crop_size")
    scaled = _side(size) or _side(find(config, ("image_size", "vision_config.image_size"))) or 224
    final = (_side(cut) if found.get("do_center_crop") else None) or scaled
    if not all(0 < side <= LARGEST_SIDE for side in (scaled, final)):
        raise CheckpointError(f"{name} asks for images of {scaled} and {final} pixels: expected 1 to {LARGEST_SIDE}")
    plain, resample = found.get("do_normalize") is False, found.get("resample", 3)
    return ImageInput(
        size=int(final),
        mean=(0.0, 0.0, 0.0) if plain else _three(found.get("image_mean") or IMAGENET_MEAN, f"{name}: image_mean"),
        std=(1.0, 1.0, 1.0) if plain else _three(found.get("image_std") or IMAGENET_STD, f"{name}: image_std", least=0),
        interpolation=_INTERPOLATION.get(resample, "bicubic") if isinstance(resample, int) else "bicubic",
        crop=min(1.0, final / scaled),
        squash=_squashes(found),
    )


def _three(values: Any, what: str, least: float = -math.inf) -> tuple[float, ...]:
    """One number per colour."""
    numbers = values if isinstance(values, list | tuple) else ()
    if len(numbers) != 3 or not all(isinstance(v, int | float) and least < v < math.inf for v in numbers):
        raise CheckpointError(f"{what}: expected three numbers{' above 0' if least == 0 else ''}, got {values!r}")
    return tuple(map(float, numbers))


def _squashes(preprocessor: Mapping[str, Any]) -> bool:
    """Whether both sides are scaled: by a height and a width, or by an old file's one number unless of CLIP or Bit."""
    size = preprocessor.get("size")
    if isinstance(size, Mapping):
        return "height" in size
    kind = str(preprocessor.get("image_processor_type") or preprocessor.get("feature_extractor_type"))
    return isinstance(size, int) and not kind.startswith(("CLIP", "Bit"))


def _side(size: Any) -> int | None:
    if isinstance(size, Mapping):
        size = size.get("shortest_edge") or size.get("height")
    if isinstance(size, list | tuple):
        size = min((side for side in size if isinstance(side, int)), default=None)
    return int(size) if isinstance(size, int) else None


def _preprocessor(name: str, at: Mapping[str, Any]) -> dict[str, Any]:
    from transformers.utils import cached_file

    try:
        path = cached_file(name, "preprocessor_config.json", **at, _raise_exceptions_for_missing_entries=False)
    except OSError:
        path = None
    return read_object(path, "the preprocessing of a Hugging Face model") if path else {}


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Without transformers' load report and bars: what matters of it is raised as an error."""
    logging = transformers.utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
