"""Where a verb's result goes: a file and figures, refused before the work, and then tables or JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar

import typer
from rich.console import Console

from unsmooth.cli import options

if TYPE_CHECKING:
    from unsmooth.figures import Drawing

Figures = Annotated[Path | None, typer.Option(help="Write the figures into this folder, as SVG, PNG and PDF.")]


class Saveable(Protocol):
    """A result that can be written."""

    def save(self, path: Path, /) -> object: ...

    def to_json(self) -> dict[str, Any]: ...


Found = TypeVar("Found", bound=Saveable)


@dataclass(frozen=True)
class OutputOptions:
    """Which files are written, and whether people or machines read what is printed."""

    figures: Figures = None
    out: options.Out = None
    as_json: options.Json = False

    def check(self) -> None:
        """An error now, before hours of work, where `tell` would fail in the end."""
        from unsmooth.figures import check_folder
        from unsmooth.sources.files import check_writable

        if self.out is not None:
            check_writable(self.out)
        if self.figures is not None:
            check_folder(self.figures)

    def tell(
        self,
        found: Found,
        drawings: Callable[[Found], Mapping[str, Drawing] | Iterator[tuple[str, Drawing]]],
        show: Callable[[Found, Console], None],
    ) -> None:
        """Write what was asked for, and print the result."""
        from unsmooth.figures import save_figures

        if self.out is not None:
            found.save(self.out)
        if self.figures is not None:
            save_figures(drawings(found), self.figures)
        if self.as_json:
            typer.echo(json.dumps(found.to_json(), indent=1))
            return
        show(found, Console())
        for path in (self.out, self.figures):
            if path is not None:
                typer.echo(f"written to {path}")
