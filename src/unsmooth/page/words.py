"""Numbers, names and lists as they stand in a sentence of the page."""

from __future__ import annotations

from html import escape

from unsmooth.figures.text import counted, listed, number_text, percent_text, signed_text

__all__ = [
    "SHARPENS",
    "SMOOTHS",
    "counted",
    "listed",
    "named",
    "number_text",
    "percent_text",
    "signed_text",
    "within",
]

SMOOTHS = '<span class="smooth-word">{}</span>'
SHARPENS = '<span class="sharp-word">{}</span>'


def named(name: str) -> str:
    """A model's name as HTML.

    >>> named("a<b")
    '<b>a&lt;b</b>'
    """
    return f"<b>{escape(name)}</b>"


def within(name: str, count: int) -> str:
    """`in NAME` where there is more than one model.

    >>> within("a", 2), within("a", 1)
    (' in <b>a</b>', '')
    """
    return f" in {named(name)}" if count > 1 else ""
