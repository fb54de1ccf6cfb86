"""`unsmooth compare A B`: two measurements, or two models on the same data, with intervals."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from unsmooth.cli import options
from unsmooth.cli.groups import ungrouped
from unsmooth.cli.measure import Metrics, Points, run
from unsmooth.cli.output import FileOptions
from unsmooth.cli.progress import interruptible
from unsmooth.cli.tables.layout import small_print, written
from unsmooth.errors import OptionError, PointError
from unsmooth.prose import counted

if TYPE_CHECKING:
    import pandas as pd

    from unsmooth.analysis import Measurement

_SIDE = (
    "A file that `unsmooth measure --out` wrote, a result of the zoo (zoo:NAME/measurement.json), a model as `measure` "
    "takes it (with --data), or a pattern in quotes for the records of several seeds."
)
First = Annotated[str, typer.Argument(metavar="A", help=_SIDE)]
Second = Annotated[str, typer.Argument(metavar="B", help=_SIDE)]
DataPath = Annotated[
    str | None, typer.Option("--data", help="Data on which models are measured, as for `unsmooth measure`.")
]
Page = Annotated[Path | None, typer.Option(metavar="PAGE.html", help="Write an HTML page that opens offline.")]


@ungrouped
def command(
    first: First,
    second: Second,
    data: DataPath = None,
    metrics: Metrics = "paper",
    tokens: options.Tokens = "all",
    points: Points = "residual",
    reading: options.DataOptions = options.DataOptions(),
    loading: options.ModelsOptions = options.ModelsOptions(),
    out: Page = None,
    as_json: options.Json = False,
) -> None:
    """Show B − A with a 95 % interval for every number that both have, paired if both saw the same inputs.

    Records of training runs ('runs/*-plain-seed*', in quotes) are compared over seeds.
    """
    from unsmooth.analysis import compare, load_measurement
    from unsmooth.cli.reproduce import show_result
    from unsmooth.paper.seeds import over_seeds
    from unsmooth.sources.files import write_result

    output = FileOptions(out, as_json)
    output.check()
    if seeds := over_seeds(first, second):
        if out is not None:
            raise OptionError("records of training runs are compared in a table only: leave out --out, or use --json")
        output.finish(seeds.to_json, partial(show_result, seeds))
        return

    models = [reference for reference in (first, second) if not _is_measurement(reference)]
    if models and data is None:
        raise OptionError(f"{models[0]} is a model, not a measurement (RUN.json): say with --data what to measure")
    opened = loading.load_each(models)

    def side(reference: str) -> Measurement:
        if reference not in models:
            return load_measurement(reference)
        assert data is not None
        loaded = next(opened)
        return run(loaded, reading.open(data, loaded), metrics, tokens, points, "error", stopped)

    with interruptible() as stopped:
        a, b, names = side(first), side(second), _names(first, second, loading.weights or [])
    frame = compare(a, b)
    shown = frame[frame["point"].isin(_chosen(frame, points))]

    def page(path: Path) -> None:
        from unsmooth.page.comparison import comparison_page

        write_result(path, comparison_page(a, b, names, list(shown["point"])))

    output.finish(partial(_plain, shown, a, b, names), partial(_show, shown, a, b, names), (out, page))
    stopped.leave()


def _chosen(frame: pd.DataFrame, points: str) -> list[str]:
    """The points to show; a measurement without the residual stream is shown whole."""
    from fnmatch import fnmatchcase

    have = list(dict.fromkeys(frame["point"]))
    if points == "residual":
        # `pre` is the output before it: shown once.
        stream = frame[(frame["kind"] == "residual") & ~frame["point"].str.endswith(".pre")]
        return list(dict.fromkeys(stream["point"])) or have
    patterns = ["*"] if points == "all" else points.split(",")
    found = [point for point in have if any(fnmatchcase(point, pattern) for pattern in patterns)]
    if not found:
        raise PointError(f"no point that both hold matches {points!r}: they share {', '.join(have)}")
    return found


def _show(shown: pd.DataFrame, a: Measurement, b: Measurement, names: tuple[str, str], console: Console) -> None:
    from unsmooth.analysis.measuring.pairing import pair
    from unsmooth.metrics.differences import LEVEL, holm
    from unsmooth.metrics.registry import metric_named
    from unsmooth.page.comparison import equal, finding, left_out

    wide = False
    for tokens, rows in shown.groupby("tokens", sort=False):
        by_metric = {metric_named(str(metric)).title: part for metric, part in rows.groupby("metric", sort=False)}
        table, wide = _fitting(by_metric, console)
        console.print(f"{names[1]} − {names[0]}, tokens: {tokens}", style="italic", markup=False, highlight=False)
        console.print(table)
        for title, part in by_metric.items():
            console.print(f"{title}: {finding(part, names)}", markup=False, highlight=False)
    first = f"the first column of each pair is {names[0]}; " if wide else ""
    pairing = pair(a, b, names)
    kept, marked = sum(p < LEVEL for p in holm(shown["p"].to_list())), int(shown["differs"].sum())
    corrected = f"{kept} of {marked} still do when all {len(shown)} numbers are corrected together (Holm)"
    tested = (f"{first}* marks an interval that leaves out zero; {corrected}", pairing.interval)
    lines = (f"{first}all numbers are equal, so nothing is tested: {pairing.why}",) if equal(shown) else tested
    console.print(small_print(lines, (*left_out(shown, pairing), *_notes(a, b, names))))


def _fitting(by_metric: dict[str, pd.DataFrame], console: Console) -> tuple[Table, bool]:
    """The fullest table that fits: A's values too, differences only, shorter numbers; and whether A's are in it."""
    for wide, write in ((True, _full), (False, _full), (False, _short)):
        table = _table(by_metric, wide, write)
        if console.measure(table, options=console.options.update(width=10_000)).maximum <= console.width:
            break
    return table, wide


def _table(by_metric: dict[str, pd.DataFrame], wide: bool, write: Callable[[float, float, bool], str]) -> Table:
    table = Table()
    table.add_column("point", no_wrap=True)
    for title in by_metric:
        if wide:
            table.add_column(title, justify="right", style="dim")
        table.add_column("difference" if wide else title, justify="right", no_wrap=True)
    by_point = [part.set_index("point") for part in by_metric.values()]
    for point in by_point[0].index:
        cells = []
        for part in by_point:
            row = part.loc[point]
            cells += [written(row["a"], ".4g")] if wide else []
            cells.append(write(row["difference"], (row["high"] - row["low"]) / 2, row["differs"]))
        table.add_row(point, *cells)
    return table


def _full(difference: float, half: float, differs: bool) -> str:
    """Both to the same decimals, two of them significant in the half-width; zero where there is nothing else.

    >>> _full(-0.00886, 0.0671, False), _full(3.4, 0.567, True), _full(2e-10, 1e-10, True), _full(0.0, 0.0, False)
    ('-0.009 ± 0.067  ', '+3.40 ± 0.57 *', '+2.00e-10 ± 1.0e-10 *', '0  ')
    """
    mark = " *" if differs else "  "
    if not half > 0:
        return written(difference, "+.3g") + mark
    text = _decimals(difference, half, 2, " ± ")
    return (text if len(text) <= 18 else written(difference, "+.3g", half, ".2g")) + mark


def _short(difference: float, half: float, differs: bool) -> str:
    """Both to the same decimals, two or one of them significant in the half-width; powers of ten where none fit.

    >>> _short(0.000192, 0.0000561, True), _short(1.92e-9, 5.61e-10, False), _short(0.0, 0.0, False)
    ('+0.00019±0.00006*', '+1.9e-09±6e-10 ', '0 ')
    """
    mark = "*" if differs else " "
    if not half > 0:
        return written(difference, "+.3g") + mark
    fitting = [text for digits in (2, 1) if len(text := _decimals(difference, half, digits, "±")) <= 16]
    return (fitting or [f"{difference:+.1e}±{half:.0e}"])[0] + mark


def _decimals(difference: float, half: float, digits: int, between: str) -> str:
    """Both to the decimals of so many significant digits of the half-width."""
    if not math.isfinite(half):
        return f"{difference:+.3g}{between}{half:.2g}"
    decimals = max(0, digits - 1 - math.floor(math.log10(half)))
    return f"{difference:+.{decimals}f}{between}{half:.{decimals}f}"


def _notes(a: Measurement, b: Measurement, names: tuple[str, str]) -> list[str]:
    """What must be said about a comparison."""
    from unsmooth.page.comparison import same_run

    found = same_run(a, b, names)
    here, there = (m.about.data.reference or "not recorded" for m in (a, b))
    if here != there:
        found.append(f"the data differ: {names[0]} on {here}, {names[1]} on {there}")
    for name, mine, other in ((names[0], a, b), (names[1], b, a)):
        alone = {cell.point for cell in mine.cells} - {cell.point for cell in other.cells}
        if alone:
            found.append(
                f"{counted(len(alone), 'point')} {'is' if len(alone) == 1 else 'are'} in {name} only and left out"
            )
        if mine.partial:
            found.append(f"{name} is partial: its measurement was interrupted")
    return found


def _plain(shown: pd.DataFrame, a: Measurement, b: Measurement, names: tuple[str, str]) -> dict[str, Any]:
    from unsmooth.analysis.measuring.pairing import pair
    from unsmooth.page.comparison import left_out

    pairing = pair(a, b, names)
    return {
        "a": {"name": names[0], "samples": a.samples, **a.about.to_json()["model"]},
        "b": {"name": names[1], "samples": b.samples, **b.about.to_json()["model"]},
        "interval": pairing.interval,
        "notes": [*left_out(shown, pairing), *_notes(a, b, names)],
        "rows": json.loads(shown.to_json(orient="records")),
    }


def _is_measurement(reference: str) -> bool:
    """Whether a side is a file of ours, by its name; a page or another file is neither that nor a model."""
    path = Path(reference)
    if path.suffix in (".html", ".htm"):
        raise OptionError(
            f"{reference} is a page, which cannot be compared: expected two files that `unsmooth measure --out` wrote, "
            f"or models with --data. To write a page about the difference: --out {reference}"
        )
    if path.suffix != ".json" and os.path.isfile(path):
        raise OptionError(f"{reference} is no measurement: expected a .json file that `unsmooth measure --out` wrote")
    return path.suffix == ".json"


def _names(first: str, second: str, weights: Sequence[Path]) -> tuple[str, str]:
    """What the two sides are called; one model with two files of weights by the files."""
    if first == second and len(weights) == 2:
        first, second = (f"{first} ({path.stem})" for path in weights)
    a, b = (
        Path(side).stem if side.endswith(".json") and not side.startswith("zoo:") else side for side in (first, second)
    )
    return (a, b) if a != b else (first, second)
