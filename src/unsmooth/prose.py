"""Numbers and names as they stand in a sentence."""

from __future__ import annotations

from collections.abc import Sequence


def counted(count: int, what: str) -> str:
    """A number with its noun.

    >>> counted(1, "note"), counted(2048, "sample")
    ('1 note', '2,048 samples')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def some(names: Sequence[object], most: int = 4) -> str:
    """The first of many names.

    >>> some(["a", "b", "c"], most=2), some([1, 2])
    ('a, b, …', '1, 2')
    """
    return ", ".join([*map(str, names[:most]), *(["…"] if len(names) > most else [])])
