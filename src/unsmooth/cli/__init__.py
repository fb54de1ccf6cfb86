"""The command line: arguments in, library call, table or file out. No mathematics here."""

from __future__ import annotations

import io
import os
import signal
import sys
import warnings

from unsmooth.errors import UnsmoothError, visible


def main() -> None:
    """Run the command line; a known error becomes one message and exit code 1, a warning one line without our code."""
    # While libraries load nothing is begun, and some of them swallow the exception that Ctrl-C would raise.
    before = signal.signal(signal.SIGINT, lambda *_: os._exit(128 + signal.SIGINT))
    from rich.console import Console
    from rich.markup import escape

    from unsmooth.cli.app import app

    if sys.argv[1:] and not {"--help", "--version"} & {*sys.argv}:  # which answer at once
        import torch  # noqa: F401
    signal.signal(signal.SIGINT, before)
    warnings.formatwarning = lambda message, *_, **__: f"warning: {visible(str(message))}\n"
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that what is half done is cleared away
    if isinstance(sys.stdout, io.TextIOWrapper):  # a file's name can hold bytes that no encoding writes
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app()
    except (UnsmoothError, OSError) as error:  # OSError: what is forbidden, too long a name, a device that fails
        Console(stderr=True, highlight=False).print(f"[bold red]error:[/] {escape(_said(error))}", soft_wrap=True)
        sys.exit(1)


def _said(error: UnsmoothError | OSError) -> str:
    """A message without control characters, and without the system's number of an error."""
    if isinstance(error, OSError) and error.strerror:
        where = "" if error.filename is None else f"{error.filename} cannot be read or written: "
        return visible(f"{where}{error.strerror}")
    return visible(str(error))
