"""`unsmooth reproduce LIST|NAME|all`: the figures and tables of the paper and the poster."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from unsmooth.cli import options
from unsmooth.cli.groups import ungrouped
from unsmooth.cli.output import OutputOptions, json_file
from unsmooth.cli.progress import track
from unsmooth.cli.tables.layout import narrow_table, small_print
from unsmooth.cli.values import device_named
from unsmooth.errors import UnsmoothError

if TYPE_CHECKING:
    from unsmooth.paper import Context, Item, Result
    from unsmooth.paper.item import Section
    from unsmooth.paper.item import Table as PlainTable

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME|list|all", help="The name of a figure or table; `list` shows all names, `all` runs all of them."
    ),
]
About = Annotated[
    bool, typer.Option("--about", help="Only say what the item shows, what it needs, and how long it takes.")
]
Models = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        metavar="[NAME=]REFERENCE",
        help="Use this model, or a saved result, instead of the default. Repeatable.",
    ),
]
DataPaths = Annotated[
    list[str] | None,
    typer.Option("--data", metavar="PATH", help="Data for the models: once for all, or once for each. Repeatable."),
]
Runs = Annotated[Path | None, typer.Option(help="Use the training runs in this folder, which `unsmooth train` wrote.")]
Recompute = Annotated[
    bool,
    typer.Option(
        "--recompute", help="Compute from the shipped models (and --data) instead of reading the records of their runs."
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of random weights and inputs.")]

PART = re.compile(r"[^\s-]*(?:-+|\s+|$)")  # what of a name stays on one line: a word, or what ends in a hyphen
WHOLE = re.compile(r"\([^()]{1,20}\)\S*|[±<] \S+|\S+ – \S+|\S+")  # the same of a cell: an interval, a spread, a word
READABLE = 100  # columns of a paragraph
COUNT = re.compile(r" ?\(n=(\d+)\)")


@ungrouped
def command(
    name: Name,
    about: About = False,
    model: Models = None,
    data: DataPaths = None,
    runs: Runs = None,
    recompute: Recompute = False,
    samples: options.Samples = None,
    batch_size: options.BatchSize = 8,
    device: options.Device = "auto",
    seed: Seed = 0,
    output: OutputOptions = OutputOptions(),
) -> None:
    """Compute a figure or table of the paper or poster, with the published numbers beside ours.

    If the published models or data are missing, the command uses what is available and says so in the label.
    """
    from unsmooth.figures import save_figures
    from unsmooth.paper import Context, find_item, items

    wanted = items() if name in ("list", "all") else (find_item(name),)
    if name == "list" or about:
        output.finish(lambda: _described(wanted), partial(_tell if about else _list, wanted))
        return
    output.check()
    device = device if device == "auto" else str(device_named(device))
    context = Context(tuple(model or ()), tuple(data or ()), runs, samples, batch_size, device, seed, recompute, track)
    results, failed = _run(wanted, context, keep_going=name == "all")
    found = {key: {"name": key, **result.to_json()} for key, result in results.items()}
    found |= {key: {"name": key, "error": why} for key, why in failed.items()}
    plain = list(found.values()) if name == "all" else found[name]

    def draw(folder: Path) -> None:
        for result in results.values():
            save_figures(result.figures, folder)

    def show(console: Console) -> None:
        for item in wanted:
            _show(item, results.get(item.name), failed.get(item.name), console)

    output.finish(lambda: plain, show, (output.out, json_file(plain)), (output.figures, draw))
    if failed:
        raise typer.Exit(1)


def _run(wanted: tuple[Item, ...], context: Context, keep_going: bool) -> tuple[dict[str, Result], dict[str, str]]:
    """Each item's result, and why the others gave none; of one item alone, the error itself."""
    results: dict[str, Result] = {}
    failed: dict[str, str] = {}
    for item in wanted:
        try:
            results[item.name] = item.run(context)
        except UnsmoothError as error:
            if not keep_going:
                raise
            failed[item.name] = str(error)
    return results, failed


def _described(wanted: tuple[Item, ...]) -> list[dict[str, str]]:
    return [{"name": i.name, "source": i.source, "title": i.title, "needs": i.needs} for i in wanted]


def _list(wanted: tuple[Item, ...], console: Console) -> None:
    table = Table.grid("name", "title", padding=(0, 2, 0, 0))
    for item in wanted:
        table.add_row(Text(item.name, style="bold"), Text(item.title))
    console.print(table)
    console.print(
        "Most run on what ships with unsmooth in seconds. `unsmooth reproduce NAME --about` says what one needs, and "
        "which data and models it can use instead.",
        style="dim", highlight=False,
    )  # fmt: skip


def _tell(wanted: tuple[Item, ...], console: Console) -> None:
    for item in wanted:
        console.print(f"[bold]{item.name}[/]  {item.title}", highlight=False)
        console.print(Padding(Text(f"needs: {item.needs}"), (0, 0, 0, 4)), style="dim")


def _show(item: Item, result: Result | None, why: str | None, console: Console) -> None:
    console.print(f"[bold]{item.name}[/]  {item.title}", highlight=False)
    if result is None:
        console.print(f"not run: {why}", style="red", markup=False, highlight=False)
        return
    show_result(result, console)


def show_result(result: Result, console: Console) -> None:
    """Label, tables, sections and notes."""
    console.print(result.label, style="italic", markup=False, highlight=False)
    for table in result.tables:
        _show_table(table, console)
    for section in result.sections:
        _show_section(section, console)
    if result.notes:
        console.print(small_print((), result.notes))


def _show_table(table: PlainTable, console: Console) -> None:
    said, cells = _counted_once(table.title, table.cells())
    rows = [table.columns, *cells]
    for number, part in enumerate(_parts(rows, console.width)):
        title = said if number == 0 else f"{table.title} (continued)"
        console.print(_table(title, [[row[column] for column in part] for row in rows], console.width))


def _show_section(section: Section, console: Console) -> None:
    """A heading, how sure the answer is, a paragraph that can be read, its tables, and the command behind it."""
    status = Text(section.status, style="dim")
    command = Text("$ " + section.command.replace("; ", "\n$ "), style="dim")
    console.print(Text(f"\n{section.heading}", style="bold"))

    def indented(line: Text) -> None:
        console.print(Padding(line, (0, 0, 0, 3)), width=min(console.width, READABLE))

    indented(status)
    indented(Text(section.text))
    for table in section.tables:
        _show_table(table, console)
    indented(command)


def _counted_once(title: str, rows: Sequence[Sequence[str]]) -> tuple[str, list[list[str]]]:
    """The number of runs beside the title, where every number of the table is of as many.

    >>> _counted_once("Accuracy", [["plain", "67.5 (n=1)", "-0.2 (n=1)"]])
    ('Accuracy (n=1)', [['plain', '67.5', '-0.2']])
    """
    counts = {count for row in rows for cell in row for count in COUNT.findall(cell)}
    if len(counts) != 1:
        return title, [list(row) for row in rows]
    return f"{title} (n={counts.pop()})", [[COUNT.sub("", cell) for cell in row] for row in rows]


def _table(title: str, rows: Sequence[Sequence[str]], room: int) -> Table:
    """Headings and cells; what does not fit goes on below, because a cut number is none."""
    shown, widths = narrow_table(title), _widths(rows, room)
    for number, heading in enumerate(rows[0]):
        justify: JustifyMethod = "left" if number == 0 else "right"
        shown.add_column(heading, justify=justify, overflow="fold", width=widths[number])
    for name, *row in rows[1:]:
        shown.add_row(_broken(name, widths[0]), *map(_whole, row, widths[1:]))
    return shown


def _parts(rows: Sequence[Sequence[str]], room: int) -> list[list[int]]:
    """Which columns stand in one table: all, or so many as fit without a broken word; each has those that name its row.

    >>> _parts([["model", "published", "ours"], ["ViT-Ti", "28.67", "28.20"]], room=18)
    [[0, 1], [0, 2]]
    >>> _parts([["data", "model", "published", "ours"], ["10 %", "a", "1", "2"], ["10 %", "b", "3", "4"]], room=24)
    [[0, 1, 2], [0, 1, 3]]
    """
    widths = _least(rows)
    naming = next((k for k in range(1, len(widths)) if len({tuple(row[:k]) for row in rows[1:]}) == len(rows) - 1), 1)
    taken = sum(widths[:naming]) + naming + 1
    names = list(range(naming))
    parts, left = [[*names]], room - taken
    for number, width in enumerate(widths[naming:], start=naming):
        if width + 1 > left and len(parts[-1]) > naming:
            parts.append([*names])
            left = room - taken
        parts[-1].append(number)
        left -= width + 1
    return parts


def _least(rows: Sequence[Sequence[str]]) -> list[int]:
    """How narrow each column can be: its longest word; names in the first column may break after a hyphen."""
    names, *others = zip(*rows, strict=True)
    words = [max(cell_len(word) for cell in column for word in WHOLE.findall(cell) or [""]) for column in others]
    return [max(cell_len(part.rstrip()) for cell in names for part in PART.findall(cell) or [""]), *words]


def _widths(rows: Sequence[Sequence[str]], room: int) -> list[int]:
    """Widths of columns whose lines break between words.

    >>> _widths([["model", "ours"], ["ViT-Ti (smoothing)", "28.04"]], room=80)
    [18, 5]
    >>> _widths([["model", "ours"], ["ViT-Ti (smoothing)", "28.04"]], room=20)
    [12, 5]
    """
    widths = _least(rows)
    room -= len(widths) + 1  # one space before each column and one at the end
    for number, column in enumerate(zip(*rows, strict=True)):
        wanted = max(cell_len(cell) for cell in column) - widths[number]
        widths[number] += min(wanted, max(0, room - sum(widths)))
    return widths


def _broken(name: str, width: int) -> str:
    """A name on lines of this width, broken after hyphens where it is too long.

    >>> _broken("cifar100-10pct-plain", 15)
    'cifar100-10pct-\\nplain'
    """
    lines = [""]
    for part in PART.findall(name):
        if cell_len(lines[-1] + part.rstrip()) > width and lines[-1]:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def _whole(cell: str, width: int) -> str:
    """A cell on lines of this width, no interval or spread broken.

    >>> _whole("+0.16 (-0.44 to +0.69)", 16), _whole("1.530 ± 0.118", 8)
    ('+0.16\\n(-0.44 to +0.69)', '1.530\\n± 0.118')
    """
    lines = [""]
    for part in WHOLE.findall(cell):
        longer = f"{lines[-1]} {part}".strip()
        lines[-1:] = [longer] if cell_len(longer) <= width or not lines[-1] else [lines[-1], part]
    return "\n".join(lines)
