"""The command line: arguments in, library call, table or file out. No mathematics here."""

from __future__ import annotations

import io
import signal
import sys
import warnings
from importlib import import_module

import typer
from rich.console import Console
from rich.markup import escape

from unsmooth.errors import UnsmoothError, visible

# One file per verb, each with one function `command`.
VERBS = (
    "demo",
    "measure",
    "explain",
    "simulate",
    "report",
    "compare",
    "check",
    "train",
    "evaluate",
    "reproduce",
)

app = typer.Typer(
    name="unsmooth",
    help="Does my Transformer oversmooth, where, why, and what do I do about it?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        from unsmooth import __version__

        typer.echo(f"unsmooth {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    pass


for _verb in VERBS:
    app.command(_verb)(import_module(f"unsmooth.cli.{_verb}").command)


def main() -> None:
    """Run the command line; a known error becomes one message and exit code 1, a warning one line without our code."""
    warnings.formatwarning = lambda message, *_, **__: f"warning: {visible(str(message))}\n"
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that what is half done is cleared away
    if isinstance(sys.stdout, io.TextIOWrapper):  # a file's name can hold bytes that no encoding writes
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app()
    except (UnsmoothError, OSError) as error:  # OSError: what is forbidden, too long a name, a device that fails
        said = escape(visible(str(error)))
        Console(stderr=True, highlight=False).print(f"[bold red]error:[/] {said}", soft_wrap=True)
        sys.exit(1)
