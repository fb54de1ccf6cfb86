"""The bundled passages of public-domain books (see README.md here)."""

from __future__ import annotations

from pathlib import Path

PASSAGES = Path(__file__).parent / "passages.jsonl"
