"""The versions a result was made with."""

from __future__ import annotations

import platform
import sys

import torch


def library_versions() -> dict[str, str]:
    """Versions of Python, unsmooth, torch, and of the model libraries where they are loaded."""
    import unsmooth

    found = {
        "python": platform.python_version(),
        "unsmooth": unsmooth.__version__,
        "torch": torch.__version__,
    }
    for name in ("timm", "transformers", "torchvision"):
        if name in sys.modules:
            found[name] = str(getattr(sys.modules[name], "__version__", "unknown"))
    return found
