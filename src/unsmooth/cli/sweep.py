"""`unsmooth sweep MODEL --data PATH --task KIND:PATH`: what does one pay for one unit of HFC/LFC?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from unsmooth.cli import options
from unsmooth.cli.groups import ungrouped
from unsmooth.errors import OptionError

if TYPE_CHECKING:
    from rich.table import Table

    from unsmooth.analysis import Sweep

TaskName = Annotated[
    str,
    typer.Option(
        "--task",
        help="knn:PATH (labelled images), perplexity:PATH (texts; causal models), retrieval:PATH:FIELD,FIELD (jsonl).",
    ),
]
Edits = Annotated[
    list[str] | None,
    typer.Option(
        "--edit", metavar="KEY=VALUE[,…]", help="What `unsmooth.edit` takes, as high=0, scale=0.5 or "
        "drop_sink=True; repeatable. "
        "By default high=0 (no eigenvalue above 0, where they smooth in theory) and low=0 (none below).",
    ),
]  # fmt: skip
Strengths = Annotated[str, typer.Option(help="How far each edit goes, from 0 to 1, with commas.")]
LayersChosen = Annotated[str, typer.Option("--layers", help="Which layers are edited: all, first-half, 3, 2:10, ….")]
Tokens = Annotated[str, typer.Option(help="Token policies, with commas; tables and figure take the last.")]
TaskSamples = Annotated[int, typer.Option(min=2, help="Samples of the task; k-NN takes 4 × as many for its bank.")]
Figures = Annotated[Path | None, typer.Option(help="Write the figure into this folder, as SVG, PNG and PDF.")]


@ungrouped
def command(
    model: options.Model,
    data: options.DataPath,
    task: TaskName,
    edit: Edits = None,
    strengths: Strengths = "0.25,0.5,0.75,1",
    layers: LayersChosen = "all",
    tokens: Tokens = "all,no-outliers",
    task_samples: TaskSamples = 200,
    reading: options.DataOptions = options.DataOptions(samples=32),
    loading: options.ModelOptions = options.ModelOptions(),
    figures: Figures = None,
    out: options.Out = None,
    as_json: options.Json = False,
) -> None:
    """Edit a model at growing strength, and hold HFC/LFC after its last block against a task's score."""
    from unsmooth.analysis import Origin
    from unsmooth.figures import check_folder, save_figures
    from unsmooth.sources.files import check_writable
    from unsmooth.sweeping import open_task, sweep
    from unsmooth.sweeping.strengths import EDITS

    if out is not None:
        check_writable(out)
    if figures is not None:
        check_folder(figures)
    edits = [options.key_values(text.split(",")) for text in edit] if edit else list(EDITS)
    steps = numbers(strengths)
    loaded = loading.load(model)
    batches = reading.open(data, loaded)
    asked = open_task(task, loaded, samples=task_samples, batch_size=reading.batch_size, max_length=reading.max_length)
    err = Console(stderr=True, highlight=False)
    found = sweep(
        loaded, batches, asked, edits=edits, strengths=steps, layers=layers, tokens=tokens,
        origin=Origin.of(loaded, batches, options.command_line()), progress=err.print,
    )  # fmt: skip
    if out is not None:
        found.save(out)
    if figures is not None:
        save_figures({"sweep": found.plot()}, figures)
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=1))
        return
    show(found, Console())
    for path in (out, figures):
        if path is not None:
            typer.echo(f"written to {path}")


def numbers(text: str) -> list[float]:
    """Numbers with commas.

    >>> numbers("0.5, 1")
    [0.5, 1.0]
    """
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise OptionError(f"--strengths {text!r}: expected numbers with commas, such as 0.25,0.5,1") from None


def show(found: Sweep, console: Console) -> None:
    """One table for all edits, and what its columns are."""
    console.print(table(found))
    lines = [f"{found.task.name}: {found.task.definition}",
             *(f"{name}: {said}" for name, said in found.about.definitions.columns.items())]  # fmt: skip
    for line in [*lines, *(f"note: {note}" for note in found.notes)]:
        console.print(Text(line, style="dim"))


def table(found: Sweep) -> Table:
    """Strength, smoothness, score and price."""
    from unsmooth.cli.tables import narrow_table, written

    policy = found.policy()
    made = narrow_table(
        f"{found.about.model.name}: {found.task.name} in {found.task.unit} ({found.task.better} is better), "
        f"{found.task.samples} samples; HFC/LFC of {policy} tokens, {found.about.data.inputs} inputs"
    )
    for name in ("edit", "strength", "moved", "HFC/LFC", "score", "difference (95 %)", "price"):
        made.add_column(name, justify="left" if name == "edit" else "right")
    for swept in found.edits:
        for point in swept.points:
            row: list[Any] = [swept.name if point.strength == 0 else "", f"{point.strength:g}", f"{point.moved:.0%}"]
            row += [f"{point.smoothness[policy]['hfc_lfc']:.3g}", f"{point.score:.4g}"]
            if point.strength:
                within = "" if point.low is None else f" ({point.low:+.3g} to {point.high:+.3g})"
                row += [f"{point.difference:+.3g}{within}", written(swept.price(point, policy), "+.3g")]
            made.add_row(*row)
        made.add_section()
    return made
