"""When a result was made, by which code, on what and with which versions: what every file that we write says."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch


@dataclass(frozen=True)
class Provenance:
    """The circumstances of a result."""

    date: str  # the day, in UTC
    commit: str
    hardware: str
    versions: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def provenance(device: torch.device | str | None = None, processes: int = 1) -> Provenance:
    """Of what is computed now, on this device (without one: what there is)."""
    return Provenance(
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        commit=commit(),
        hardware=hardware(device, processes),
        versions=library_versions(),
    )


def library_versions() -> dict[str, str]:
    """Versions of Python, unsmooth, torch, and of the model libraries where they are loaded."""
    from unsmooth import __version__

    found = {"python": platform.python_version(), "unsmooth": __version__, "torch": torch.__version__}
    for name in ("timm", "transformers", "torchvision"):
        if name in sys.modules:
            found[name] = str(getattr(sys.modules[name], "__version__", "unknown"))
    return found


def hardware(device: torch.device | str | None = None, processes: int = 1) -> str:
    """The device in words; without one, what there is."""
    device = torch.device(device or default_device())
    if device.type == "cuda":
        return f"{processes} × {torch.cuda.get_device_name(device)}"
    return f"{'' if processes == 1 else f'{processes} × '}CPU {platform.processor() or platform.machine()}"


def commit() -> str:
    """The commit of the code that runs: what UNSMOOTH_COMMIT says (git may not know in a copy), or git."""
    if named := os.environ.get("UNSMOOTH_COMMIT"):
        return named
    here = Path(__file__).resolve()

    def git(*words: str) -> str:
        options: dict[str, Any] = {"cwd": here.parent, "capture_output": True, "text": True, "timeout": 10}
        return subprocess.run(["git", *words], check=True, **options).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", here.name)  # a package installed inside another repository is not part of it
        return git("rev-parse", "--short", "HEAD")
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def default_device() -> str:
    """A GPU where there is one."""
    return "cuda" if torch.cuda.is_available() else "cpu"
