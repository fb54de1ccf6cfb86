"""`unsmooth push FOLDER REPO`: a trained model to the Hugging Face hub, with its card."""

from __future__ import annotations

from typing import Annotated

import typer

from unsmooth.cli import options
from unsmooth.cli.output import print_json

Model = Annotated[str, typer.Argument(metavar="FOLDER", help="A folder that `unsmooth train` wrote, or zoo:NAME.")]
Repository = Annotated[str, typer.Argument(metavar="REPO", help="OWNER/NAME on the Hugging Face hub.")]
Private = Annotated[bool, typer.Option("--private", help="Make the repository private if it is new.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the card and the files, and upload nothing.")]


def command(
    folder: Model, repo: Repository, private: Private = False, dry_run: DryRun = False, as_json: options.Json = False
) -> None:
    """Upload a trained model with its card, record, measurement and figure. Log in with `hf auth login` first."""
    from unsmooth.publishing import push

    done = push(folder, repo, private=private, dry_run=dry_run)
    if as_json:
        print_json({"uploaded": not dry_run, **done._asdict()})
        return
    if dry_run:
        typer.echo(done.card)
    for name, size in done.files.items():
        typer.echo(f"{size / 1e3:9.1f} kB  {name}")
    typer.echo(f"{'would go to' if dry_run else 'uploaded to'} {done.address}")
