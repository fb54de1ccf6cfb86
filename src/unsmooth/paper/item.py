"""What a reproducible figure or table is: a name, what it needs, and a function from a context to a result.

A module of this package that has a constant `ITEM` is found by the index by itself:

    ITEM = Item("fig4", "paper", "Smoothing behaviour by depth", needs="models and data; …", run=run)

    def run(context: Context) -> Result: ...

Such a module imports libraries such as timm inside its functions, so that listing all items stays quick.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from unsmooth.errors import OptionError

if TYPE_CHECKING:
    from unsmooth.figures import Drawing

Source = Literal["paper", "poster", "ours"]
Value = str | float | int | None


def _untracked(things: Iterable[Any], label: str, total: int | None) -> Iterable[Any]:
    return things


@dataclass(frozen=True)
class Context:
    """What the user gave; an item uses what it needs and falls back to what is there.

    `models` are model references (`name=reference` gives one a name), `data` paths as `unsmooth measure` takes them
    (one for all models, or one for each), `runs` a folder of training runs, `samples` the most to use,
    `recompute` asks for numbers from the shipped models instead of the records of their training, `track` goes through
    things that take long, with a label and how many there are, and shows how far it is.
    """

    models: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    runs: Path | None = None
    samples: int | None = None
    batch_size: int = 8
    device: str = "auto"
    seed: int = 0
    recompute: bool = False
    track: Callable[[Iterable[Any], str, int | None], Iterable[Any]] = field(default=_untracked, repr=False)


@dataclass(frozen=True)
class Table:
    """A table of plain values; numbers are formatted where they are shown, None is an empty cell."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Value]]
    digits: int = 4

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise OptionError(f"table {self.title!r}: expected {len(self.columns)} cells in each row, got {row!r}")

    def cells(self) -> list[list[str]]:
        """Every cell as text.

        >>> Table("t", ["a", "b"], [["x", 0.123456], [None, 3]]).cells()
        [['x', '0.1235'], ['', '3']]
        """
        return [[_text(value, self.digits) for value in row] for row in self.rows]

    def to_json(self) -> dict[str, Any]:
        """Plain data; nan and infinity as words, which JSON lacks."""
        rows = [[str(v) if isinstance(v, float) and not math.isfinite(v) else v for v in row] for row in self.rows]
        return {"title": self.title, "columns": list(self.columns), "rows": rows}


@dataclass(frozen=True)
class Section:
    """A question with its answer: how sure that is, in words, by which command, and the tables behind it."""

    heading: str
    status: str
    text: str
    command: str
    tables: Sequence[Table] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {**vars(self), "tables": [table.to_json() for table in self.tables]}


@dataclass(frozen=True)
class Result:
    """What an item gives: tables, figures by name, an honest label.

    `label` says what the numbers are: the published setting, or what stood in for it ("shipped CIFAR-100 models
    instead of ImageNet ones"). `sections` are read in their order; `notes` are further sentences; `about` is provenance
    (models, data, versions, seeds).
    """

    label: str
    tables: Sequence[Table] = ()
    sections: Sequence[Section] = ()
    figures: Mapping[str, Drawing] = field(default_factory=dict)
    notes: Sequence[str] = ()
    about: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain data, without the figures."""
        return {
            "label": self.label,
            "tables": [table.to_json() for table in self.tables],
            "sections": [section.to_json() for section in self.sections],
            "notes": list(self.notes),
            "about": dict(self.about),
        }


@dataclass(frozen=True)
class Item:
    """One figure or table.

    `needs` is read by people before they run it: which weights and data, whether a hub, about how long, and what is
    used instead when these are absent.
    """

    name: str
    source: Source
    title: str
    needs: str
    run: Callable[[Context], Result] = field(repr=False)


def _text(value: Value, digits: int) -> str:
    if value is None:
        return ""
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)
