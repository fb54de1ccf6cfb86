"""Models and results of the zoo that this copy does not hold, from the Hugging Face hub; data only, never code."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from unsmooth.errors import CheckpointError, MissingExtraError, OptionError

HUB = "unsmooth"  # under whose name the zoo is published; UNSMOOTH_HUB names another
FILES = ("*.json", "*.safetensors", "*.txt", "*.md")  # what `push` uploads


def zoo_result(reference: str) -> Path:
    """The file behind `zoo:NAME/FILE.json`: a result of the zoo, shipped or in the hub's cache, fetched if needed."""
    from unsmooth.sources.trained import zoo_folder

    name, _, file = reference.removeprefix("zoo:").partition("/")
    if not _is_name(name) or not re.fullmatch(r"\w[\w-]*\.json", file, re.ASCII):
        raise OptionError(
            f"expected a result of the zoo as zoo:NAME/FILE.json, got {reference!r}: such as "
            "zoo:small-text-plain/measurement.json; zoo:NAME alone is a model"
        )
    models = zoo_folder() / "results" / "models"
    for folder in (zoo_folder() / name, models / name):
        if (folder / file).is_file():
            return folder / file
    fetched, why = _fetch(name, [file])
    if fetched is not None and (fetched / file).is_file():
        return fetched / file
    have = ", ".join(f"zoo:{path.parent.name}/{path.name}" for path in sorted(models.glob("*/measurement.json")))
    why = why or f"{_repository(name)} on the hub has no {file}"
    raise CheckpointError(f"no result {reference}; available: {have or 'none yet'} ({why})")


def fetch_zoo_model(name: str) -> tuple[Path | None, str]:
    """The folder of a model in the hub's cache, fetched if needed; or None, and why not."""
    return _fetch(name, FILES) if _is_name(name) else (None, "that is no name of a repository")


def _is_name(name: str) -> bool:
    return re.fullmatch(r"\w[\w.-]{0,95}", name, re.ASCII) is not None and ".." not in name


def _repository(name: str) -> str:
    return f"{os.environ.get('UNSMOOTH_HUB', HUB)}/{name}"


def _fetch(name: str, files: Sequence[str]) -> tuple[Path | None, str]:
    """The folder in the hub's cache with those files of a repository that match; one call, for single ones too: it asks
    once, where a download of one file repeats its question for half a minute without a network."""
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import RepositoryNotFoundError
    except ImportError:
        return None, str(MissingExtraError.needed("huggingface_hub", "hub", "looking for it on the hub"))
    try:
        return Path(snapshot_download(_repository(name), allow_patterns=list(files))), ""
    except RepositoryNotFoundError:
        return None, f"and the hub has no {_repository(name)}"
    except OSError as error:  # without a network, or refused: all errors of the hub's client are of this kind
        return None, f"and the hub could not be asked for {_repository(name)} ({type(error).__name__})"
