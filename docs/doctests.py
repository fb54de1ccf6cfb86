"""Examples in docstrings (>>>) become blocks of code on the API page; Markdown would take them for quotations."""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\n).+)*", re.MULTILINE)  # up to the next empty line


def fenced(text: str) -> str:
    """The docstring with its examples as blocks of code.

    >>> print(fenced("Twice.\\n\\n>>> 2 * 2\\n4").replace("`", "'"))
    Twice.
    <BLANKLINE>
    '''pycon
    >>> 2 * 2
    4
    '''
    """
    return text if "```" in text else _EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", text)


class Doctests(griffe.Extension):
    """Looks at every docstring before it is rendered."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of a module, class or function."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
