"""`unsmooth train RECIPE --data PATH`: train a recipe's model, plain or reparametrised; `--list NAME`: many of them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from unsmooth.cli import options
from unsmooth.cli.output import print_json
from unsmooth.cli.progress import stoppable
from unsmooth.cli.values import device_named
from unsmooth.errors import OptionError

if TYPE_CHECKING:
    from unsmooth.training import Run, TrainingRecord

RecipeName = Annotated[
    str | None,
    typer.Argument(
        metavar="RECIPE",
        help="Images: cifar100, cifar100-fast (patch size 4 and 50 epochs, for quick trials), cifar100-small (for a "
        "CPU), tiny-imagenet, imagenet, imagenet-90; those of CIFAR-100 also with 6, 24 or 36 layers "
        "(cifar100-depth24). Text: crammed-bert, small-text.",
    ),
]
RECORDS = Path("zoo/records")
DataPath = Annotated[
    str,
    typer.Option(
        "--data",
        help="Images: parquet in Hugging Face's layout, torchvision's CIFAR-100 folder, class folders, "
        "hub:NAME, or, for imagenet, tar shards. Texts: .txt, .jsonl or parquet (several with commas), or hub:NAME.",
    ),
]
ListName = Annotated[
    str | None,
    typer.Option(
        "--list",
        metavar="NAME",
        help="Train all runs of a list, one after the other, in RECIPE or, without one, in cifar100: all-data, "
        "ten-percent, half, forms, initialisation, ratio, peers, study, study-more; tiny-imagenet has its own recipe. "
        "--variant and --seed select some.",
    ),
]
Variant = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="plain (the default); sharpening or smoothing, in the poster's form (symmetric) or in another one "
        "(sharpening-eigen, smoothing-split, …), in all layers or in some (sharpening@first-half, "
        "sharpening@:6+smoothing@6:); or a published fix (attnscale, …). Repeatable with --list.",
    ),
]
Seed = Annotated[
    list[int] | None,
    typer.Option(metavar="NUMBER", help="Seed of initialisation, data order and augmentation. Repeatable with --list."),
]
Fraction = Annotated[float, typer.Option(help="Images: train on this share of every class. Shares are nested.")]
Subset = Annotated[int, typer.Option(help="With --fraction: which random draw of the images is used.")]
SameSteps = Annotated[bool, typer.Option("--same-steps", help="Train for as many steps as on all data.")]
Std = Annotated[float | None, typer.Option(help="Initial standard deviation of ψ. By default that of the form.")]
Budget = Annotated[
    str | None, typer.Option(help="Train for this many steps (2000) or this long (15m), not for the recipe's length.")
]
KeepEvery = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="NUMBER",
        help="Keep the model every so many epochs (for text: steps), at the next evaluation, in the run's folder, for "
        "`unsmooth track`.",
    ),
]
Changes = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a value of the recipe. Repeatable.")
]
Folder = Annotated[
    Path | None, typer.Option("--out", help="Folder of the run, by default runs/NAME. With --list: folder of all runs.")
]
Records = Annotated[
    Path, typer.Option(help="With --list: folder in which records are collected. A run that has a record is skipped.")
]
Results = Annotated[
    Path | None,
    typer.Option(
        help="Also measure and explain the trained model (for images: evaluate it), and write the results and "
        "the record, without weights, into a folder of their own inside this one."
    ),
]
SuperGlueFolder = Annotated[
    str | None, typer.Option("--superglue", help="With --results, for text: also fine-tune on these SuperGLUE tasks.")
]
SuperGlueBudget = Annotated[
    str | None, typer.Option(help="Time limit of --superglue (8m). If it is short, seeds and then tasks are left out.")
]
Minutes = Annotated[
    float,
    typer.Option(
        min=0,
        show_default=False,
        help="With --list: start no run that would not end within this time. By default there is no limit.",
    ),
]
TensorBoard = Annotated[bool, typer.Option(help="Write a log for TensorBoard beside log.jsonl (none with --list).")]


def command(
    data: DataPath,
    recipe: RecipeName = None,
    list_name: ListName = None,
    variant: Variant = None,
    seed: Seed = None,
    fraction: Fraction = 1.0,
    subset: Subset = 0,
    same_steps: SameSteps = False,
    std: Std = None,
    budget: Budget = None,
    keep_every: KeepEvery = None,
    changes: Changes = None,
    out: Folder = None,
    records: Records = RECORDS,
    results: Results = None,
    superglue: SuperGlueFolder = None,
    superglue_budget: SuperGlueBudget = None,
    minutes: Minutes = float("inf"),
    tensorboard: TensorBoard = True,
    device: options.Device = "auto",
    as_json: options.Json = False,
) -> None:
    """Train a model from a recipe. The same command continues an interrupted run.

    On several GPUs: `accelerate launch -m unsmooth.cli train …`.
    """
    from unsmooth.training import Run, find_recipe

    where = None if device == "auto" else str(device_named(device))
    if list_name is not None:
        if (fraction, subset, same_steps, std, budget) != (1.0, 0, False, None, None):
            has = "--fraction, --subset, --same-steps, --std and --budget"
            raise OptionError(f"the runs of a list have their own {has}: leave these out")
        if (keep_every, superglue, superglue_budget, as_json) != (None, None, None, False):
            raise OptionError("--keep-every, --superglue, its budget and --json are for one run: give no --list")
        _train_list(list_name, recipe, variant, seed, changes or [], data, out, records, results, minutes, where)
        return
    if recipe is None:
        raise OptionError("expected a recipe or --list NAME: for example unsmooth train cifar100 …")
    if (minutes, records) != (float("inf"), RECORDS):
        raise OptionError("--minutes and --records are for --list; one run's time is limited by --budget, such as 30m")
    if len(variant or ()) > 1 or len(seed or ()) > 1:
        raise OptionError("a run has one variant and one seed; several are for --list")
    changed, one, first = find_recipe(recipe).override(changes or []), (variant or ["plain"])[0], (seed or [0])[0]
    run = Run(changed, one, first, fraction, same_steps, std, subset, budget)
    folder = out or Path("runs") / run.name
    more = _after(run, folder, results, superglue, superglue_budget)
    record = None
    with stoppable(lambda: _what_is_kept(folder, record is not None)):
        record = train_with_progress(run, data, folder, where, tensorboard, keep_every)
        if record is not None and results is not None:
            _write_results(run, folder, data, results, where, more)
    if record is None:
        return  # another process writes the record
    print_json(record.to_json()) if as_json else _tell(record, run, folder, results)


def _tell(record: TrainingRecord, run: Run, folder: Path, results: Path | None) -> None:
    from unsmooth.training.engine.record import in_words

    error = record.final.get("calibration_error")
    calibration = "" if error is None else f", calibration error {100 * error:.1f} %"
    typer.echo(f"{run.name}: {in_words(record.final)}{calibration}, {record.minutes:.1f} minutes")
    typer.echo(f"model, log and record are in {folder}")
    if results is not None:
        typer.echo(f"results are in {results / run.short_name}")


def _what_is_kept(folder: Path, ended: bool) -> str:
    """For somebody who stopped a run: how far it came, and what the same command would do."""
    from unsmooth.training.engine.checkpoint import progress_of

    if ended:
        return f"the training in {folder} has ended; the same command goes on with those results that are missing"
    done = progress_of(folder)
    if done is None:
        return "there is no checkpoint yet; the same command starts anew"
    return f"the checkpoint in {folder} is of {done}; the same command goes on from there"


def _after(run: Run, folder: Path, results: Path | None, superglue: str | None, budget: str | None) -> dict[str, Any]:
    """What is done with the trained model; what cannot be done is refused before anything is trained."""
    from unsmooth.sources.files import check_writable
    from unsmooth.training.engine.budget import Budget
    from unsmooth.training.engine.record import RECORD
    from unsmooth.training.engine.results import check_results
    from unsmooth.training.tasks.superglue.examples import check_files
    from unsmooth.training.tasks.text.recipe import TextRecipe

    if superglue is None:
        if budget is not None:
            raise OptionError("--superglue-budget is what --superglue PATH may take: give both")
    elif results is None or not isinstance(run.recipe, TextRecipe):
        raise OptionError("--superglue fine-tunes a text model and keeps its scores in --results DIR: give both")
    if results is None:
        return {}
    check_writable(results / run.short_name / RECORD)
    check_results(results / run.short_name, folder)
    if superglue is None:
        return {}
    minutes = Budget.parse(budget).minutes
    if budget is not None and minutes is None:
        raise OptionError(f"expected a time such as 8m or 90s for --superglue-budget, got {budget!r}")
    check_files(superglue)
    return {"superglue": superglue, "minutes": minutes}


def _write_results(run: Run, folder: Path, data: str, results: Path, device: str | None, more: dict[str, Any]) -> None:
    from unsmooth.sources.provenance import default_device

    say = partial(typer.echo, err=True)
    run.recipe.write_results(folder, data, results / run.short_name, device=device or default_device(), say=say, **more)


def _train_list(
    name: str, recipe: str | None, variants: list[str] | None, seeds: list[int] | None, changes: list[str], data: str,
    out: Path | None, records: Path, results: Path | None, minutes: float, device: str | None,
) -> None:  # fmt: skip
    from unsmooth.training.lists import find_list, train_all

    runs = [replace(run, recipe=run.recipe.override(changes)) for run in find_list(name, recipe)]
    runs = [run for run in runs if not seeds or run.seed in seeds]
    runs = [run for run in runs if not variants or run.variant in variants]
    if not runs:
        raise OptionError(f"the list {name} has no run of these variants and seeds")

    def report(done: int, total: int, row: dict[str, Any]) -> None:
        if "test" in row:
            typer.echo(f"  {done}/{total}: {describe(row)}, {row['minutes']} min", err=True)

    with stoppable(lambda: "the same command goes on from the last checkpoint"):
        train_all(
            runs, data, out or Path("runs"), records, minutes, typer.echo, results, device=device, progress=report,
            tensorboard=False,
        )  # fmt: skip


def train_with_progress(
    run: Run, data: str, folder: Path, device: str | None, tensorboard: bool, keep_every: int | None = None
) -> TrainingRecord | None:
    """The run with a live bar on stderr: how far it is, last loss and scores."""
    from unsmooth.training import launch

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
        task = progress.add_task(run.name, total=None, shown="")

        def report(done: int, total: int, row: dict[str, Any]) -> None:
            progress.update(task, completed=done, total=total)
            if "test" in row:
                progress.update(task, shown=describe(row))
                if not console.is_terminal:
                    unit = "epoch" if "epoch" in row else "step"
                    typer.echo(f"{unit} {done}/{total}: {describe(row)}", err=True)

        return launch(run, data, folder, device=device, progress=report, tensorboard=tensorboard, keep_every=keep_every)


def describe(row: dict[str, Any]) -> str:
    """One logged row in a few words."""
    from unsmooth.training.engine.record import in_words

    return f"loss {row['train_loss']:.3f}, {in_words(row['test'])}"
