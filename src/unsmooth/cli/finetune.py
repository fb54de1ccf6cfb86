"""`unsmooth finetune MODEL --data PATH`: does control help when a pretrained model is fine-tuned?"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from unsmooth.cli import options
from unsmooth.cli.output import print_json
from unsmooth.cli.tables.layout import small_print
from unsmooth.cli.values import device_named, numbers
from unsmooth.errors import OptionError

if TYPE_CHECKING:
    from unsmooth.training.finetuning import FineTuned

Images = Annotated[str | None, typer.Option("--data", help="Labelled images with a training and a test split.")]
SuperGlueFolder = Annotated[
    str | None, typer.Option("--superglue", help="The folder of SuperGLUE, to fine-tune a text encoder.")
]
Tasks = Annotated[str, typer.Option(help="With --superglue: the tasks, separated by commas.")]
Fractions = Annotated[
    str, typer.Option(help="With --data: shares of the training images to train on, separated by commas.")
]
Arms = Annotated[
    str,
    typer.Option(
        help="The ways of training to compare, separated by commas: plain (always included); "
        "adapter-sharpening, adapter-smoothing, penalty-sharpening, penalty-smoothing, each also with the suffix "
        "-strong; a penalty with the suffix -bare; and the published fixes attnscale, featscale, "
        "contranorm, neutreno, gfsa, centered."
    ),
]
Seeds = Annotated[int, typer.Option(min=1, help="Runs of each arm. Runs with the same seed are compared as pairs.")]
Epochs = Annotated[
    int | None, typer.Option(min=1, help="By default 5 on images, and 5 or 10 on text, depending on the task.")
]
Minutes = Annotated[
    float,
    typer.Option(
        min=0,
        show_default=False,
        help="Start no run that would not end within this time. By default there is no limit.",
    ),
]
Folder = Annotated[
    Path, typer.Option("--out", help="Folder for a result file per run. Runs that have one are not repeated.")
]
TestImages = Annotated[int | None, typer.Option(min=1, help="With --data: evaluate on this many test images only.")]
TrainBatch = Annotated[int | None, typer.Option(min=1, help="Samples per step. By default 128 images or 16 texts.")]
Precision = Annotated[str, typer.Option(help="bf16 (on a GPU) or float32.")]
FRACTIONS, TASKS = "0.1,1", "RTE,CB,COPA"
DEFAULT = "plain,adapter-sharpening,adapter-smoothing,penalty-sharpening,penalty-smoothing,contranorm,featscale"


def command(
    model: options.Model,
    out: Folder,
    data: Images = None,
    superglue: SuperGlueFolder = None,
    fractions: Fractions = FRACTIONS,
    tasks: Tasks = TASKS,
    arms: Arms = DEFAULT,
    seeds: Seeds = 5,
    epochs: Epochs = None,
    minutes: Minutes = 1e9,
    test_images: TestImages = None,
    batch_size: TrainBatch = None,
    precision: Precision = "bf16",
    device: options.Device = "auto",
    weights: options.Weights = None,
    random_init: options.RandomInit = False,
    model_option: options.ModelOption = None,
    as_json: options.Json = False,
) -> None:
    """Fine-tune a model with and without control, over several seeds, and say which differences can be claimed.

    Control means adapters or penalties that act on the eigenvalues of H, or published fixes.
    """
    from unsmooth.sources.files import check_writable
    from unsmooth.training.finetuning import run_study
    from unsmooth.training.finetuning.arms import chosen_arms
    from unsmooth.training.finetuning.images import ImageJob, ImageSettings
    from unsmooth.training.finetuning.text import TextJob
    from unsmooth.training.tasks.images.data import load_images
    from unsmooth.training.tasks.superglue.finetune import FineTuning

    if (data is None) == (superglue is None):
        raise OptionError("expected --data PATH of labelled images, or --superglue PATH for a text encoder, not both")
    if superglue is not None and (fractions, test_images) != (FRACTIONS, None):
        raise OptionError("--fractions and --test-images are for images (--data): leave them out")
    if data is not None and tasks != TASKS:
        raise OptionError("--tasks are those of --superglue: leave them out")
    chosen = chosen_arms(arms.split(","))
    check_writable(out / "x.json") if out.is_dir() else check_writable(out)
    where = device_named(device)
    kept = options.PlaceOptions(device="cpu", dtype="float32")  # every run takes a copy to the device
    loaded = kept.open(model, weights, random_init, model_option)
    jobs: list[Any]
    if data is not None:
        splits = load_images(data, "train"), load_images(data, "test")
        settings = [
            ImageSettings(share, epochs or 5, batch_size or 128, precision=precision, test_images=test_images)
            for share in numbers("--fractions", fractions, float, "0.1,1")
        ]
        jobs = [ImageJob(loaded, data, each, where, splits) for each in settings]
    else:
        assert superglue is not None
        how = FineTuning(batch_size=batch_size or 16, precision=precision, epochs=epochs)
        jobs = [TextJob(loaded, superglue, name.strip(), how, where) for name in tasks.split(",")]
    options.recognised(jobs[0].build(0).encoder, [jobs[0].look()], loaded.reference)
    err = Console(stderr=True, highlight=False)
    runs = run_study(
        short_name(loaded.reference),
        jobs,
        chosen,
        range(seeds),
        out,
        minutes=minutes,
        command=options.command_line(),
        say=err.print,
    )
    if as_json:
        print_json([{"data": job.name, "claims": claims(runs, job.name)} for job in jobs])
        return
    show(runs, [job.name for job in jobs], Console())


# The column about the eigenvalues of H: its number, its heading, and what that means.
FOLDED = (
    "acting_negative_energy",
    "(Re λ < 0)²",
    "share of Σ (Re λ)² that comes from eigenvalues of H with Re λ < 0, norms and LayerScale folded in",
)
BARE = ("negative", "Re λ < 0", "share of the eigenvalues of H of the bare weights with Re λ < 0")


def short_name(reference: str) -> str:
    """A model without the folder that it was read from.

    >>> short_name("hf:models/mpnet-base"), short_name("timm:vit_small_patch14_dinov2")
    ('hf:mpnet-base', 'timm:vit_small_patch14_dinov2')
    """
    kind, colon, name = reference.rpartition(":")
    return f"{kind}{colon}{Path(name).name}"


def claims(runs: Sequence[FineTuned], data: str) -> list[str]:
    """What can be claimed of each arm against plain."""
    from unsmooth.training.finetuning.study import compared

    return [found.claim() for found in compared(runs, data)]


def show(runs: Sequence[FineTuned], names: Sequence[str], console: Console) -> None:
    """One table for each data set, and what can be claimed."""
    from unsmooth.training.finetuning import arm_names

    for data in names:
        here = [run for run in runs if run.data == data]
        table = Table(title=f"{data}: {here[0].unit if here else 'no run yet'}, in %", title_justify="left")
        # earlier runs know the share of the bare weights' eigenvalues, not how much those of the folded H weigh
        weighed = all("acting_negative_energy_after" in run.scores for run in here if run.scores)
        side, heading, share = FOLDED if weighed else BARE
        for column in ("arm", "score", "n", "HFC/LFC", heading, "seconds"):
            table.add_column(column, justify="left" if column == "arm" else "right", overflow="fold")
        for arm in sorted({run.arm for run in here}, key=arm_names().index):
            done = [run for run in here if run.arm == arm and run.scores]
            if not done:
                table.add_row(arm, "failed", "0", "", "")
                continue
            scores = [100 * run.scores["score"] for run in done]
            spread = f" ± {statistics.stdev(scores):.2f}" if len(scores) > 1 else ""
            moved = [
                " → ".join(format(statistics.mean(run.scores[f"{name}_{when}"] for run in done), form)
                           for when in ("before", "after"))
                for name, form in (("hfc_lfc", ".3g"), (side, ".1%"))
            ]  # fmt: skip
            took = f"{statistics.mean(run.seconds for run in done):.0f}"
            table.add_row(arm, f"{statistics.mean(scores):.2f}{spread}", str(len(done)), *moved, took)
        console.print(table)
        meanings = ("HFC/LFC: after the last block, before → after fine-tuning", f"{heading}: {share}")
        console.print(small_print(meanings, ()))
        for said in claims(runs, data):
            console.print(said, highlight=False, soft_wrap=True)
