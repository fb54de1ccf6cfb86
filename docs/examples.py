"""Every entry of the API page gets an example: a line of these documents that uses it, and where it stands.

The lines are code that tests run. Entries whose docstring has an example of its own (>>>) keep that.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
_ENTRY = re.compile(r"^::: ([\w.]+)\.(\w+)\n((?:    .*\n)*)", re.MULTILINE)


@cache
def lines() -> list[tuple[str, str]]:
    """Page and line of all code in the documents, pages for readers first."""
    pages = sorted(DOCS.glob("*.md"), key=lambda page: (not page.stem.startswith("quick-"), page.stem))
    found = [(page.name, block) for page in pages for block in _BLOCK.findall(page.read_text(encoding="utf-8"))]
    return [(page, line.strip()) for page, block in found for line in block.splitlines()]


def example(module: str, name: str) -> str:
    """Markdown with a line that uses the name; nothing for what shows itself, or is shown nowhere."""
    if ">>>" in (getattr(import_module(module), name).__doc__ or ""):
        return ""
    using = [(page, line) for page, line in lines() if re.search(rf"\b{name}\b", line)]
    calls = [each for each in using if re.search(rf"\b{name}\(", each[1]) and not each[1].startswith("def ")]
    for page, line in calls or using:
        whole = line.removesuffix("(") + "(…" if line.endswith("(") else line
        return f"\nExample, from [{page.removesuffix('.md')}]({page}):\n\n```python\n{whole}\n```\n"
    return ""


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """mkdocs: an example behind every entry of the API page."""
    if page.file.src_uri != "api.md":
        return markdown
    return _ENTRY.sub(lambda found: found[0] + example(found[1], found[2]), markdown)
