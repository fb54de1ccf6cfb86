"""What a wheel holds besides the code: models trained on all data, records and results, so that any install has them.

An editable install finds `zoo/` in the project itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MODELS = tuple(f"{data}-{variant}" for data in ("cifar100", "text") for variant in ("plain", "sharpening", "smoothing"))


class ZooHook(BuildHookInterface):
    """Puts a part of `zoo/` into the package."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it writes; `version` is "standard" for a wheel, "editable" for a link."""
        if version == "standard":
            zoo = Path(self.root) / "zoo"
            results = [path.relative_to(zoo) for path in (zoo / "results").rglob("*.json")]
            kept = [path for path in results if path.name != "explanation.json"]  # large, and no table reads it
            for name in ("README.md", "records", *MODELS, *map(str, kept)):
                build_data["force_include"][str(zoo / name)] = f"unsmooth/zoo/{name}"
