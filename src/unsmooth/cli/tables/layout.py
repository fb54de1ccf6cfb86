"""What the tables of all results share: narrow columns, numbers with their spread, small print."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text


def titled(title: str, columns: Iterable[str] = (), left: Collection[str] = (), **look: Any) -> Table:
    """A table with its title on the left; numbers stand on the right of their columns, words on the left."""
    table = Table(title=title, title_justify="left", **look)
    for name in columns:
        table.add_column(name, justify="left" if name in left else "right")
    return table


def narrow_table(title: str, columns: Iterable[str] = (), left: Collection[str] = ()) -> Table:
    """The same for many columns on a terminal of 80: no lines but the one under the headings."""
    return titled(title, columns, left, box=SIMPLE_HEAD, pad_edge=False, padding=0)


def written(value: float, spec: str, spread: float = math.nan, spread_spec: str = "") -> str:
    """A number with its spread; without where there is none, as of one sample, and `–` for what is not defined.

    >>> written(1.5, ".2f", 0.25, ".2f"), written(1.5, ".2f"), written(math.nan, ".2f", math.nan)
    ('1.50 ± 0.25', '1.50', '–')
    >>> written(3.4, ".3g", 0.5, ".2g"), written(120.0, ".3g", 12.0, ".2g"), written(0.0, "+.3g", 0.0, ".2g")
    ('3.40 ± 0.50', '120 ± 12', '0 ± 0')
    """
    if math.isnan(value):
        return "–"
    return _figures(value, spec) + ("" if math.isnan(spread) else f" ± {_figures(spread, spread_spec)}")


def _figures(value: float, spec: str) -> str:
    """All the significant digits that a column has, zeros at the end too; prose leaves those out (`number_text`)."""
    if not spec.endswith("g"):
        return format(value, spec)
    return format(value, spec.replace(".", "#.")).removesuffix(".") if value else "0"


def small_print(lines: Iterable[str], notes: Iterable[str], unfinished: str = "") -> Group:
    """Below the tables: what numbers mean, what must be said about them, and what was left `unfinished`."""
    said = [Text(line, style="dim") for line in (*lines, *(f"note: {note}" for note in notes))]
    said += [Text(f"PARTIAL: interrupted before all data was {unfinished}", style="bold red")] if unfinished else []
    return Group(*said)


def in_words(paragraphs: Iterable[str]) -> Group:
    """What was found in sentences, last: a terminal shows the end of what is printed."""
    return Group(*(Text(f"\n{said}") for said in paragraphs))
