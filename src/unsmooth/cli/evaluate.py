"""`unsmooth evaluate MODEL --data PATH`: accuracy, calibration, smoothing, and regenerated CIFAR-100-C."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from unsmooth.cli import options

if TYPE_CHECKING:
    from unsmooth.training import Evaluation

TrainedModel = Annotated[
    str, typer.Argument(metavar="MODEL", help="zoo:NAME, or the folder of a model that `train` wrote.")
]
DataPath = Annotated[str, typer.Option("--data", help="The data it was trained on; the test split is used.")]
Corruptions = Annotated[
    bool, typer.Option("--corruptions", help="Also on regenerated CIFAR-100-C: 15 corruptions, 5 severities.")
]
MetricImages = Annotated[int, typer.Option(min=1, help="Images for the smoothing metrics.")]
Precision = Annotated[
    str, typer.Option(help="float32, or bf16 to classify in bfloat16 on a GPU, as training did: several times faster.")
]
Seed = Annotated[int, typer.Option(help="Of the corruptions' random draws.")]


def command(
    model: TrainedModel,
    data: DataPath,
    corruptions: Corruptions = False,
    limit: options.Limit = None,
    batch_size: options.BatchSize = 500,
    seed: Seed = 0,
    metric_images: MetricImages = 256,
    precision: Precision = "float32",
    device: options.Device = "auto",
    out: options.Out = None,
    as_json: options.Json = False,
) -> None:
    """Accuracy, expected calibration error and the three smoothing metrics on the test set."""
    from unsmooth.sources.files import check_writable
    from unsmooth.training import evaluate_trained

    if out is not None:
        check_writable(out)
    found = evaluate_trained(
        model,
        data,
        corruptions=corruptions,
        limit=limit,
        batch_size=batch_size,
        seed=seed,
        metric_images=metric_images,
        precision=precision,
        device=options.device_named(device),
        progress=lambda done, total: _count(done, total),
    )
    if out is not None:
        found.save(out)
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=1))
    else:
        show(found, Console())


def _count(done: int, total: int) -> None:
    console = Console(stderr=True)
    if console.is_terminal:
        console.print(f"corrupted test set {done}/{total}", end="\r")


def show(found: Evaluation, console: Console) -> None:
    """Tables for people."""
    clean = found.clean
    console.print(
        f"{found.model}, {clean.images} test images: accuracy {100 * clean.accuracy:.2f} %, "
        f"loss {clean.loss:.3f}, calibration error {100 * clean.calibration_error:.2f} %",
        highlight=False,
    )
    table = Table(title=found.smoothing_definition, title_justify="left")
    names = list(found.smoothing)
    for column in ("layer", *names):
        table.add_column(column, justify="right")
    for layer, values in enumerate(zip(*found.smoothing.values(), strict=True)):
        table.add_row(str(layer), *(f"{v:.4g}" for v in values))
    console.print(table)
    if found.corruptions is not None:
        console.print(_corruption_table(found.corruptions))


def _corruption_table(found: dict[str, Any]) -> Table:
    table = Table(title=f"{found['name']}, accuracy in %, by severity", title_justify="left")
    table.add_column("corruption")
    severities = list(found["mean"])
    for severity in severities:
        table.add_column(severity, justify="right")
    for name, row in found["accuracy"].items():
        table.add_row(name, *(f"{100 * row[s]:.2f}" for s in severities))
    table.add_section()
    table.add_row("mean", *(f"{100 * found['mean'][s]:.2f}" for s in severities))
    return table
