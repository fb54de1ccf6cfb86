"""The bundled pictures (see README.md here for their licences)."""

from __future__ import annotations

from pathlib import Path

PICTURES = Path(__file__).parent
