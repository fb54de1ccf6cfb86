"""Tables as plain text."""

from __future__ import annotations

import io

from rich.console import Console, RenderableType
from rich.table import Table


def rows(table: Table) -> list[list[str]]:
    """The heading and every row, as text."""
    columns = [[str(column.header), *(str(cell) for cell in column.cells)] for column in table.columns]
    return [list(row) for row in zip(*columns, strict=True)]


def text(shown: RenderableType, width: int = 200) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(shown)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]
