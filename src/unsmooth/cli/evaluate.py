"""`unsmooth evaluate MODEL`: of an image model accuracy, calibration and corruptions, of a text model SuperGLUE."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from unsmooth.cli import options
from unsmooth.cli.groups import ungrouped
from unsmooth.cli.output import FileOptions
from unsmooth.cli.tables.layout import titled
from unsmooth.cli.values import device_named
from unsmooth.errors import OptionError, UnsmoothError

if TYPE_CHECKING:
    import torch

    from unsmooth.training import Evaluation
    from unsmooth.training.tasks.superglue.evaluation import SuperGlue
    from unsmooth.training.tasks.text.evaluation import MaskedEvaluation

TrainedModel = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help="zoo:NAME, or a folder that `unsmooth train` wrote. For text also hf:NAME_OR_FOLDER."
    ),
]
DataPath = Annotated[
    str | None,
    typer.Option(
        "--data",
        help="For an image model: the data set it was trained on (the test split is used). For a masked "
        "language model: texts that it has not seen, or `bundled`.",
    ),
]
SuperGlueFolder = Annotated[
    str | None, typer.Option("--superglue", help="Fine-tune a text encoder on the SuperGLUE tasks in this folder.")
]
Tasks = Annotated[
    str | None,
    typer.Option(
        help="With --superglue: the tasks, separated by commas: BoolQ, CB, COPA, MultiRC, RTE, WiC, WSC. By "
        "default all."
    ),
]
Seeds = Annotated[
    int | None, typer.Option(min=1, help="With --superglue: seeds per task. By default 5 or 3, depending on the task.")
]
Epochs = Annotated[
    int | None,
    typer.Option(min=1, help="With --superglue: epochs per task. By default 5 or 10, depending on the task."),
]
Corruptions = Annotated[
    bool,
    typer.Option("--corruptions", help="Also evaluate on regenerated CIFAR-100-C (15 corruptions at 5 severities)."),
]
MetricImages = Annotated[int, typer.Option(min=1, help="Number of images for the smoothing metrics.")]
Minutes = Annotated[
    float | None,
    typer.Option(
        min=0,
        help="With --superglue: time limit for all tasks. If it is short, fewer seeds and then fewer tasks are run.",
    ),
]
Precision = Annotated[
    str | None,
    typer.Option(
        help="float32, or bf16 on a GPU (as in training, several times faster). By default float32 for images "
        "and bf16 for --superglue."
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of the random corruptions. For text: of which tokens are hidden.")]
IMAGES, MEASURED = 500, 256  # in a batch; for the smoothing metrics


@ungrouped
def command(
    model: TrainedModel,
    data: DataPath = None,
    superglue: SuperGlueFolder = None,
    tasks: Tasks = None,
    seeds: Seeds = None,
    epochs: Epochs = None,
    corruptions: Corruptions = False,
    samples: options.Samples = None,
    batch_size: options.BatchSize = IMAGES,
    seed: Seed = 0,
    metric_images: MetricImages = MEASURED,
    minutes: Minutes = None,
    precision: Precision = None,
    device: options.Device = "auto",
    output: FileOptions = FileOptions(),
) -> None:
    """Evaluate a trained model on held-out data.

    For an image model (--data): accuracy, expected calibration error and the three smoothing metrics on the test set.
    For a masked language model (--data): the loss, and the share of hidden tokens that it predicts.
    For a text encoder (--superglue): the official metrics of seven tasks after fine-tuning. With --out, the same
    command continues interrupted work.
    """
    from unsmooth.training import evaluate_trained

    if (data is None) == (superglue is None):
        raise OptionError("expected --data PATH, or --superglue PATH to fine-tune a text encoder, and not both")
    output.check()
    if superglue is not None:
        if corruptions or (samples, batch_size, seed, metric_images) != (None, IMAGES, 0, MEASURED):
            names = "--corruptions, --samples, --batch-size, --seed and --metric-images"
            raise OptionError(f"{names} are for --data: --superglue reads all, with seeds 0, 1, …; leave them out")
        where, precision = device_named(device), precision or "bf16"
        scores = fine_tuned(model, superglue, tasks, seeds, epochs, minutes, precision, where, output.out)
        kept = (output.out, lambda path: path)  # every run is there already
        output.finish(scores.to_json, partial(show_superglue, scores), kept)
        return
    if (tasks, seeds, epochs, minutes) != (None, None, None, None):
        raise OptionError("--tasks, --seeds, --epochs and --minutes need --superglue PATH: give it, or leave them out")
    assert data is not None
    if _is_text(model):
        if corruptions:
            raise OptionError(f"{model} reads text: --corruptions are those of pictures, leave it out")
        if (batch_size, metric_images, precision) not in ((IMAGES, MEASURED, None), (IMAGES, MEASURED, "float32")):
            raise OptionError(f"{model} reads text: --batch-size, --metric-images and --precision are for images")
        masked = _masked(model, data, samples, seed, device_named(device))
        output.finish(masked.to_json, partial(_show_masked, masked), (output.out, masked.save))
        return
    found = evaluate_trained(
        model, data, corruptions=corruptions, samples=samples, batch_size=batch_size, seed=seed,
        metric_images=metric_images, precision=precision or "float32", device=device_named(device),
        progress=_count,
    )  # fmt: skip
    output.finish(found.to_json, partial(show, found), (output.out, found.save))


def _is_text(model: str) -> bool:
    """Whether text is what this model takes: a folder of `train`'s, or any Hugging Face one (images have no verb)."""
    from unsmooth.sources.trained import is_text, trained_folder

    try:
        return model.startswith("hf:") or is_text(trained_folder(model))
    except UnsmoothError:
        return False


def _masked(model: str, data: str, samples: int | None, seed: int, device: torch.device) -> MaskedEvaluation:
    """Held-out loss of a masked language model."""
    from unsmooth.sources import load_model
    from unsmooth.training.tasks.text.evaluation import evaluate_masked

    return evaluate_masked(load_model(model, device=device), data, samples=samples, seed=seed)


def _show_masked(found: MaskedEvaluation, console: Console) -> None:
    console.print(
        f"{found.model}, {found.sequences} sequences of {found.length} tokens of {found.data}: loss {found.loss:.3f} "
        f"nats a hidden token, {100 * found.accuracy:.2f} % guessed right",
        markup=False, highlight=False, soft_wrap=True,
    )  # fmt: skip


def fine_tuned(
    model: str, folder: str, tasks: str | None, seeds: int | None, epochs: int | None, minutes: float | None,
    precision: str, device: torch.device, out: Path | None,
) -> SuperGlue:  # fmt: skip
    """SuperGLUE's scores, each said when it is known."""
    from unsmooth.sources import load_model
    from unsmooth.training.tasks.superglue.evaluation import evaluate_superglue
    from unsmooth.training.tasks.superglue.examples import TASKS, find_task
    from unsmooth.training.tasks.superglue.finetune import FineTuning

    chosen = [find_task(name.strip()) for name in tasks.split(",")] if tasks else list(TASKS.values())
    err = Console(stderr=True, highlight=False)

    def say(task: str, seed: int, scores: dict[str, Any]) -> None:
        err.print(f"{task}, seed {seed}: {100 * scores['score']:.1f}")

    how = FineTuning(epochs=epochs, precision=precision)
    return evaluate_superglue(
        load_model(model), folder, chosen, how=how, seeds=seeds, minutes=minutes, out=out, device=device, progress=say
    )


def show_superglue(found: SuperGlue, console: Console) -> None:
    """One row per task: mean ± standard deviation over seeds, and what guessing would score."""
    from unsmooth.training.tasks.superglue.evaluation import NOTE
    from unsmooth.training.tasks.superglue.examples import TASKS

    columns = ("task", "metric", "score", "n", "constant guess")
    table = titled(f"{found.model['reference']}: SuperGLUE, validation, in %", columns, left=("task", "metric"))
    for name in (task for task in TASKS if task in found.scores):
        mean, spread, count = found.mean(name)
        shown = f"{100 * mean:.1f}" + ("" if math.isnan(spread) else f" ± {100 * spread:.1f}")
        guess = f"{100 * found.majority[name]['score']:.1f}"
        table.add_row(name, ", ".join(TASKS[name].metrics), shown, str(count), guess)
    if found.scores:
        table.add_section()
        table.add_row("mean of tasks", "", f"{100 * found.average:.1f}", "", "")
    console.print(table)
    if not found.protocol.get("kept", True):
        console.print(found.protocol["said"], highlight=False, soft_wrap=True)
    console.print(f"± is the standard deviation over seeds. {NOTE}", highlight=False, soft_wrap=True)


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
    table = titled(found.smoothing_definition, ("layer", *found.smoothing))
    for layer, values in enumerate(zip(*found.smoothing.values(), strict=True)):
        table.add_row(str(layer), *(f"{v:.4g}" for v in values))
    console.print(table)
    if found.corruptions is not None:
        console.print(_corruption_table(found.corruptions))


def _corruption_table(found: dict[str, Any]) -> Table:
    severities = list(found["mean"])
    title = f"{found['name']}, accuracy in %, by severity"
    table = titled(title, ("corruption", *severities), left=("corruption",))
    for name, row in found["accuracy"].items():
        table.add_row(name, *(f"{100 * row[s]:.2f}" for s in severities))
    table.add_section()
    table.add_row("mean", *(f"{100 * found['mean'][s]:.2f}" for s in severities))
    return table
