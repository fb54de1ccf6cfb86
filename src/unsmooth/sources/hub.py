"""Models of the zoo that this copy does not hold, from the Hugging Face hub; data only, never code."""

from __future__ import annotations

import os
import re
from pathlib import Path

from unsmooth.errors import MissingExtraError

HUB = "unsmooth"  # under whose name the zoo is published; UNSMOOTH_HUB names another
FILES = ("*.json", "*.safetensors", "*.txt", "*.md")  # what `push` uploads


def fetch_zoo_model(name: str) -> tuple[Path | None, str]:
    """The folder of a model in the hub's cache, fetched if needed; or None, and why not."""
    if not re.fullmatch(r"\w[\w.-]{0,95}", name, re.ASCII) or ".." in name:
        return None, "that is no name of a repository"
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError
    except ImportError:
        return None, str(MissingExtraError.needed("huggingface_hub", "hub", "looking for it on the hub"))
    repository = f"{os.environ.get('UNSMOOTH_HUB', HUB)}/{name}"
    try:
        return Path(snapshot_download(repository, allow_patterns=list(FILES))), ""
    except RepositoryNotFoundError:
        return None, f"and the hub has no {repository}"
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:  # without a network, or refused
        return None, f"and the hub could not be asked for {repository} ({type(error).__name__})"
