"""The bundled pictures (see README.md here for their licences)."""

from __future__ import annotations

from pathlib import Path


def picture_files() -> list[Path]:
    """The bundled pictures, in order of their names."""
    return sorted(Path(__file__).parent.glob("*.jpg"))
