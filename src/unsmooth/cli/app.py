"""The verbs, put together."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

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


class Verbs(TyperGroup):
    """The verbs; `--limit` of version 0.1 still stands for `--samples`, until version 0.3."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments under their names of today."""
        return super().parse_args(ctx, [re.sub(r"^--limit(?==|$)", "--samples", text) for text in args])


app = typer.Typer(
    name="unsmooth",
    cls=Verbs,
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
