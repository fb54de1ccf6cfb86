"""Where a verb's result goes: a file and figures, refused before the work, and then tables or JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar

import typer
from rich.console import Console

from unsmooth.cli import options

if TYPE_CHECKING:
    from unsmooth.figures import Drawing

Figures = Annotated[Path | None, typer.Option(help="Write the figures as SVG, PNG and PDF into this folder.")]


class Saveable(Protocol):
    """A result that can be written."""

    def save(self, path: Path, /) -> object: ...

    def to_json(self) -> dict[str, Any]: ...


Found = TypeVar("Found", bound=Saveable)


def print_json(value: Any) -> None:
    """What a command found, for machines."""
    typer.echo(json_text(value))


def json_text(value: Any) -> str:
    """JSON that every reader takes: nan and infinity, which it lacks, are words.

    >>> json_text([1.5, math.nan, {"a": -math.inf}]).split()
    ['[', '1.5,', '"nan",', '{', '"a":', '"-inf"', '}', ']']
    """
    return json.dumps(_plain(value), indent=1, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return str(float(value)) if isinstance(value, float) and not math.isfinite(value) else value


@dataclass(frozen=True)
class FileOptions:
    """Whether a file is written, and whether people or machines read what is printed."""

    out: options.Out = None
    as_json: options.Json = False

    def check(self) -> None:
        """An error now, before hours of work, where `finish` would fail in the end."""
        from unsmooth.sources.files import check_writable

        if self.out is not None:
            check_writable(self.out)

    def finish(
        self,
        to_json: Callable[[], Any],
        show: Callable[[Console], None],
        *files: tuple[Path | None, Callable[[Path], object]],
    ) -> None:
        """Write each file that was asked for, and print the result as JSON, or as tables and where the files are."""
        asked = [(path, write) for path, write in files if path is not None]
        for path, write in asked:
            write(path)
        if self.as_json:
            print_json(to_json())
            return
        show(Console())
        for path, _ in asked:
            typer.echo(f"written to {path}")


@dataclass(frozen=True)
class OutputOptions(FileOptions):
    """The same with a folder of figures."""

    figures: Figures = None

    def check(self) -> None:
        """Also of the folder."""
        from unsmooth.figures import check_folder

        super().check()
        if self.figures is not None:
            check_folder(self.figures)

    def tell(
        self,
        found: Found,
        drawings: Callable[[Found], Mapping[str, Drawing] | Iterator[tuple[str, Drawing]]],
        show: Callable[[Found, Console], None],
    ) -> None:
        """`finish` with a result that writes itself, and its figures."""
        from unsmooth.figures import save_figures

        drawn = (self.figures, lambda folder: save_figures(drawings(found), folder))
        self.finish(found.to_json, lambda console: show(found, console), (self.out, found.save), drawn)


def json_file(plain: Any) -> Callable[[Path], object]:
    """What writes this into a file."""
    from unsmooth.sources.files import write_result

    return lambda path: write_result(path, json_text(plain) + "\n")
