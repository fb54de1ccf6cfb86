"""`unsmooth sweep MODEL --data PATH --task KIND:PATH`: what does one pay for one unit of HFC/LFC?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from unsmooth.cli import options
from unsmooth.cli.groups import ungrouped
from unsmooth.cli.output import OutputOptions
from unsmooth.cli.values import key_values, numbers
from unsmooth.prose import counted

if TYPE_CHECKING:
    from rich.table import Table

    from unsmooth.analysis import Sweep

TaskName = Annotated[
    str,
    typer.Option(
        "--task",
        help="knn:PATH (labelled images), perplexity:PATH (texts, for causal models), or "
        "retrieval:PATH:FIELD,FIELD (jsonl).",
    ),
]
Edits = Annotated[
    list[str] | None,
    typer.Option(
        "--edit", metavar="KEY=VALUE[,…]",
        help="Arguments of `unsmooth.edit`, such as high=0, scale=0.5 or drop_sink=True. Repeatable. By default high=0 "
        "(no eigenvalue above 0, where they smooth in theory) and low=0 (none below 0).",
    ),
]  # fmt: skip
Strengths = Annotated[str, typer.Option(help="Strengths of each edit, from 0 to 1, separated by commas.")]
Tokens = Annotated[
    str,
    typer.Option(help="Which tokens are counted, separated by commas. The table and the figure show the last policy."),
]
TaskSamples = Annotated[
    int,
    typer.Option(
        min=2, help="Number of samples of the task. k-NN uses 4 times as many labelled images to compare with."
    ),
]


@ungrouped
def command(
    model: options.Model,
    data: options.DataPath,
    task: TaskName,
    edit: Edits = None,
    strengths: Strengths = "0.25,0.5,0.75,1",
    layers: options.Layers = "all",
    tokens: Tokens = "all,no-outliers",
    task_samples: TaskSamples = 200,
    reading: options.DataOptions = options.DataOptions(samples=32),
    loading: options.ModelOptions = options.ModelOptions(),
    output: OutputOptions = OutputOptions(),
) -> None:
    """Edit a model at increasing strength, and show HFC/LFC after its last block beside the score on a task."""
    from unsmooth.analysis import Origin
    from unsmooth.sweeping import open_task, sweep
    from unsmooth.sweeping.strengths import EDITS

    output.check()
    edits = [key_values(re.split(r",(?![^\[(]*[\])])", text)) for text in edit] if edit else list(EDITS)
    steps = numbers("--strengths", strengths, float, "0.25,0.5,1")
    loaded = loading.load(model)
    batches = reading.open(data, loaded)
    asked = open_task(task, loaded, samples=task_samples, batch_size=reading.batch_size, max_length=reading.max_length)
    err = Console(stderr=True, highlight=False)
    found = sweep(
        loaded, batches, asked, edits=edits, strengths=steps, layers=layers, tokens=tokens,
        origin=Origin.of(loaded, batches, options.command_line()), progress=err.print,
    )  # fmt: skip
    output.tell(found, lambda swept: {"sweep": swept.plot()}, show)


def show(found: Sweep, console: Console) -> None:
    """One table for all edits, and what its columns are."""
    from unsmooth.cli.tables.layout import small_print

    console.print(table(found))
    columns = {found.task.name: found.task.definition, **found.about.definitions.columns}
    headings = {"hfc_lfc": "HFC/LFC", "difference, low, high": "difference (95 %)"}
    console.print(small_print((f"{headings.get(name, name)}: {said}" for name, said in columns.items()), found.notes))


def table(found: Sweep) -> Table:
    """Strength, smoothness, score and price."""
    from unsmooth.cli.tables.layout import narrow_table, written

    policy = found.policy()
    made = narrow_table(
        f"{found.about.model.name}: {found.task.name} ({found.task.unit}, {found.task.better} is better), "
        f"{counted(found.task.samples, 'sample')}; HFC/LFC of {policy} tokens, "
        f"{counted(found.about.data.inputs or 0, 'input')}",
        ("edit", "strength", "moved", "HFC/LFC", "score", "difference (95 %)", "price"), left=("edit",),
    )  # fmt: skip
    for swept in found.edits:
        for point in swept.points:
            row: list[Any] = [swept.name if point.strength == 0 else "", f"{point.strength:g}", f"{point.moved:.0%}"]
            row += [written(point.smoothness[policy]["hfc_lfc"], ".3g"), written(point.score, ".4g")]
            if point.strength:
                ends = (
                    []
                    if point.low is None or point.high is None
                    else [written(point.low, "+.3g"), written(point.high, "+.3g")]
                )
                within = f" ({' to '.join(ends)})" if ends else ""
                row += [written(point.difference, "+.3g") + within, written(swept.price(point, policy), "+.3g")]
            made.add_row(*row)
        made.add_section()
    return made
