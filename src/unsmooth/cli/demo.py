"""`unsmooth demo`: a small look at what the tool shows, without any download."""

from __future__ import annotations

import typer
from rich.console import Console

MODEL = "timm:vit_tiny_patch16_224"


def command() -> None:
    """Measure a randomly initialised ViT-Ti on the bundled pictures, and print the tables."""
    import torch

    from unsmooth.cli.measure import run
    from unsmooth.cli.tables import show
    from unsmooth.data import open_data
    from unsmooth.models import load_model

    torch.manual_seed(0)
    loaded = load_model(MODEL, random_init=True)
    typer.echo(
        f"{MODEL} with random weights, on the bundled pictures: unsmooth measure {MODEL} --random-init --data bundled"
    )
    show(run(loaded, open_data("bundled", loaded), "paper", "all", "all"), Console())
