"""Numbers as they stand in a sentence."""

from __future__ import annotations


def counted(count: int, what: str) -> str:
    """A number with its noun.

    >>> counted(1, "note"), counted(2048, "sample")
    ('1 note', '2,048 samples')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"
