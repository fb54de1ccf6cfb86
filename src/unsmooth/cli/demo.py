"""`unsmooth demo`: the page for the models that ship with the project, on the bundled pictures, without a network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

FALLBACK = "timm:vit_tiny_patch16_224"
# Shown first, in this order, when their names say what they are.
VARIANTS = ("plain", "sharpening", "smoothing")
METRICS = "paper,vita2022,rankme,stable-rank"
Out = Annotated[Path, typer.Option(help="Where the page is written.")]
Models = Annotated[int, typer.Option(min=1, help="How many of the shipped models to show.")]


def command(out: Out = Path("demo.html"), models: Models = 3) -> None:
    """Measure and explain the shipped models on the bundled pictures: tables here, and a page to open."""
    import torch

    from unsmooth.cli.progress import track
    from unsmooth.cli.tables import show
    from unsmooth.data import open_data
    from unsmooth.files import write_atomically
    from unsmooth.models import load_model
    from unsmooth.models.load import zoo_folder
    from unsmooth.report import build_report, collect

    torch.manual_seed(0)
    chosen = shipped(zoo_folder())[:models]
    console = Console()
    if not chosen:
        typer.echo(f"no model ships with this copy: {FALLBACK} with random weights stands in")
    subjects = []
    for name in chosen or ["random ViT-Ti"]:
        loaded = load_model(f"zoo:{name}") if chosen else load_model(FALLBACK, random_init=True)
        data = open_data("bundled", loaded)
        subjects.append(
            collect(loaded, data, name, metrics=METRICS, tokens="all,patches", explain_inputs=3, track=track)
        )
        show(subjects[-1].measurement, console)
    write_atomically(out, build_report(subjects, command="unsmooth demo"))
    typer.echo(f"\nThe page is {out.resolve()}: open it in a browser.")


def shipped(folder: Path) -> list[str]:
    """The zoo's models: first plain, sharpening and smoothing of one share of the data, the larger share preferred."""
    from unsmooth.files import read_json
    from unsmooth.models.load import TRAINED

    configs = {path.parent.name: read_json(path, TRAINED) for path in sorted(folder.glob("*/config.json"))}
    groups: dict[float, dict[str, str]] = {}
    for name, config in configs.items():
        kind = next((variant for variant in VARIANTS if variant in str(config.get("variant", name))), None)
        if kind is not None:
            groups.setdefault(float(config.get("fraction", 1.0)), {}).setdefault(kind, name)
    best = max(groups.items(), key=lambda group: (len(group[1]), group[0]), default=(0.0, {}))[1]
    first = [best[variant] for variant in VARIANTS if variant in best]
    return first + [name for name in configs if name not in first]
