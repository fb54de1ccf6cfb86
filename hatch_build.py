"""What a wheel holds besides the code, and how the README reads away from the repository.

The models trained on all data and the records are in any install; an editable one finds `zoo/` in the project itself.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

MODELS = tuple(f"{data}-{variant}" for data in ("cifar100", "text") for variant in ("plain", "sharpening", "smoothing"))


LARGE = 300_000  # bytes of a result


class ZooHook(BuildHookInterface):
    """Puts a part of `zoo/` into the package."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it writes; `version` is "standard" for a wheel, "editable" for a link."""
        if version == "standard":
            zoo = Path(self.root) / "zoo"
            results = [path.relative_to(zoo) for path in (zoo / "results").rglob("*.json")]
            kept = [path for path in results if (zoo / path).stat().st_size < LARGE]  # others: the hub
            for name in ("README.md", "records", "finetuned", *MODELS, *map(str, kept)):
                build_data["force_include"][str(zoo / name)] = f"unsmooth/zoo/{name}"


class ReadmeHook(MetadataHookInterface):
    """Links and pictures of the README as whole addresses, for PyPI."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Called by hatchling when it reads the project's metadata."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        home = metadata["urls"]["Homepage"]
        raw = home.replace("github.com", "raw.githubusercontent.com") + "/main"
        text = re.sub(r"!\[([^\]]*)\]\((?!http)", rf"![\1]({raw}/", text)
        text = re.sub(r"(?<!!)\[([^\[\]]*)\]\((?!http|#)", rf"[\1]({home}/blob/main/", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
