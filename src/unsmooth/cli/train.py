"""`unsmooth train RECIPE --data PATH`: train a recipe's model, plain or reparametrised."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from unsmooth.cli import options

if TYPE_CHECKING:
    from unsmooth.train import Run

RecipeName = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE",
        help="cifar100, cifar100-fast (patch 4, to try things), or cifar100-depth6, -depth24, -depth36.",
    ),
]
DataPath = Annotated[
    str,
    typer.Option("--data", help="HF-layout parquet, torchvision's CIFAR-100 folder, class folders, or hub:NAME."),
]
Variant = Annotated[
    str,
    typer.Option(
        help="plain; sharpening or smoothing (the poster's symmetric form); sharpening-eigen, smoothing-split, …; "
        "@first-half and the like for some layers only, sharpening@:6+smoothing@6: for both; or a published fix "
        "(attnscale, contranorm, …)."
    ),
]
Seed = Annotated[int, typer.Option(help="Initialisation, data order and augmentation.")]
Fraction = Annotated[float, typer.Option(help="Share of every class to train on; smaller subsets lie inside larger.")]
Subset = Annotated[int, typer.Option(help="Which images --fraction takes: each number draws others of every class.")]
SameSteps = Annotated[bool, typer.Option("--same-steps", help="As many steps as all data takes, not as many epochs.")]
Std = Annotated[float | None, typer.Option(help="Standard deviation of ψ's initialisation; by default the form's.")]
Changes = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a value of the recipe; repeatable.")
]
Folder = Annotated[Path | None, typer.Option("--out", help="Folder of the run; by default runs/NAME.")]
TensorBoard = Annotated[bool, typer.Option(help="Write TensorBoard's events beside log.jsonl.")]


def command(
    recipe: RecipeName,
    data: DataPath,
    variant: Variant = "plain",
    seed: Seed = 0,
    fraction: Fraction = 1.0,
    subset: Subset = 0,
    same_steps: SameSteps = False,
    std: Std = None,
    changes: Changes = None,
    out: Folder = None,
    tensorboard: TensorBoard = True,
    device: options.Device = "auto",
    as_json: options.Json = False,
) -> None:
    """Train; the same command goes on where an interrupted run stopped.

    On several GPUs: `accelerate launch -m unsmooth.cli train …`.
    """
    from unsmooth.train import Run, find_recipe

    run = Run(find_recipe(recipe).override(changes or []), variant, seed, fraction, same_steps, std, subset)
    folder = out or Path("runs") / run.name
    try:
        record = train_with_progress(run, data, folder, device, tensorboard)
    except KeyboardInterrupt:
        from unsmooth.train.checkpoint import last_epoch

        done = last_epoch(folder)
        kept = f"the checkpoint in {folder} is of epoch {done} of {run.epochs}; the same command goes on from there"
        typer.echo(f"stopped: {kept if done else 'there is no checkpoint yet; the same command starts anew'}", err=True)
        raise typer.Exit(130) from None
    if not record:
        return  # another process writes the record
    if as_json:
        typer.echo(json.dumps(record, indent=1))
        return
    final = record["final"]
    typer.echo(
        f"{run.name}: test accuracy {100 * final['accuracy']:.2f} %, "
        f"calibration error {100 * final['calibration_error']:.1f} %, {record['minutes']:.1f} minutes"
    )
    typer.echo(f"model, log and record are in {folder}")


def train_with_progress(run: Run, data: str, folder: Path, device: str, tensorboard: bool) -> dict[str, Any]:
    """The run with a live bar on stderr: epochs, last loss and accuracy."""
    from unsmooth.train import launch

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[shown]}"),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(run.name, total=run.epochs, shown="")

        def report(done: int, total: int, row: dict[str, Any]) -> None:
            progress.update(task, completed=done, total=total)
            if "test" in row:
                progress.update(task, shown=describe(row))
                if not console.is_terminal:
                    typer.echo(f"epoch {done}/{total}: {describe(row)}", err=True)

        where = None if device == "auto" else str(options.device_named(device))
        return launch(run, data, folder, device=where, progress=report, tensorboard=tensorboard)


def describe(row: dict[str, Any]) -> str:
    """One logged epoch in a few words."""
    return f"loss {row['train_loss']:.3f}, test accuracy {100 * row['test']['accuracy']:.2f} %"
