"""$…$ and $$…$$ become MathML while the site is built, so that it shows formulas without any script or network."""

from __future__ import annotations

import re
from typing import Any

from latex2mathml.converter import convert

_CODE = re.compile(r"(```.*?```|`[^`\n]+`)", re.DOTALL)
_BLOCK = re.compile(r"\$\$(.+?)\$\$", re.DOTALL)
_INLINE = re.compile(r"(?<![\\$\w])\$([^$\n]+?)\$(?![\w$])")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Convert every formula outside code."""
    parts = _CODE.split(markdown)
    return "".join(part if part.startswith("`") else _formulas(part) for part in parts)


def _formulas(text: str) -> str:
    text = _BLOCK.sub(lambda found: "\n\n" + convert(found[1].strip(), display="block") + "\n\n", text)
    return _INLINE.sub(lambda found: convert(found[1]), text)
