"""$…$ and $$…$$ become MathML while the site is built, so that it shows formulas without any script or network.

Markdown would take a line that starts with `<math>` for a block of its own, and underscores for emphasis: so it sees a
word in place of each formula, and the formula is put back into the HTML.
"""

from __future__ import annotations

import re
from typing import Any

from latex2mathml.converter import convert

_CODE = re.compile(r"(```.*?```|`[^`\n]+`)", re.DOTALL)
_BLOCK = re.compile(r"\$\$(.+?)\$\$", re.DOTALL)
_INLINE = re.compile(r"(?<![\\$\w])\$([^$]+?)\$(?![\w$])")
_WORD = re.compile(r"xFORMULA(\d+)x")
_formulas: list[str] = []


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Take every formula outside code out of the text."""
    _formulas.clear()
    return "".join(part if part.startswith("`") else _take(part) for part in _CODE.split(markdown))


def on_page_content(html: str, **_: Any) -> str:
    """Put them back, as MathML."""
    return _WORD.sub(lambda found: _formulas[int(found[1])], html)


def _take(text: str) -> str:
    text = _BLOCK.sub(lambda found: f"\n\n{_word(found[1], 'block')}\n\n", text)
    return _INLINE.sub(lambda found: _word(found[1], "inline"), text)


def _word(latex: str, display: str) -> str:
    _formulas.append(convert(" ".join(latex.split()), display=display))
    return f"xFORMULA{len(_formulas) - 1}x"
