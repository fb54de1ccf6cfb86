"""What a wheel holds besides the code: the models trained on all data and the records, so that any install has them.

An editable install finds `zoo/` in the project itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MODELS = ("cifar100-plain", "cifar100-sharpening", "cifar100-smoothing")


class ZooHook(BuildHookInterface):
    """Puts a part of `zoo/` into the package."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it writes; `version` is "standard" for a wheel, "editable" for a link."""
        if version == "standard":
            for name in ("README.md", "records", "results", *MODELS):
                build_data["force_include"][str(Path(self.root) / "zoo" / name)] = f"unsmooth/zoo/{name}"
