"""`unsmooth compare A B`: two measurements, or two models on the same data, with intervals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from unsmooth.cli import options
from unsmooth.cli.measure import Metrics, Points, Tokens
from unsmooth.errors import OptionError, PointError

if TYPE_CHECKING:
    import pandas as pd

    from unsmooth.measure import Measurement

_SIDE = "A file that `unsmooth measure --out` wrote, or a model as `measure` takes it (with --data)."
First = Annotated[str, typer.Argument(metavar="A", help=_SIDE)]
Second = Annotated[str, typer.Argument(metavar="B", help=_SIDE)]
DataPath = Annotated[str | None, typer.Option("--data", help="What to measure models on, as for `unsmooth measure`.")]
Page = Annotated[Path | None, typer.Option(metavar="PAGE.html", help="Write a page that opens offline.")]


def command(
    first: First,
    second: Second,
    data: DataPath = None,
    metrics: Metrics = "paper",
    tokens: Tokens = "all",
    points: Points = "residual",
    limit: options.Limit = None,
    batch_size: options.BatchSize = 8,
    random_init: options.RandomInit = False,
    model_option: options.ModelOption = None,
    column: options.Column = None,
    max_length: options.MaxLength = 128,
    device: options.Device = "auto",
    dtype: options.Dtype = "float32",
    out: Page = None,
    as_json: options.Json = False,
) -> None:
    """Show B − A for every number that both hold, with its 95 % interval, paired where both saw the same inputs."""
    from unsmooth.files import check_writable, write_atomically
    from unsmooth.measure import compare, load_measurement

    if out is not None:
        check_writable(out)

    def side(reference: str) -> Measurement:
        if reference.endswith(".json"):
            return load_measurement(reference)
        if data is None:
            raise OptionError(f"{reference} is a model, not a measurement (RUN.json): say with --data what to measure")
        from unsmooth.cli.measure import run
        from unsmooth.data import open_data

        loaded = options.open_model(reference, None, random_init, model_option, device, dtype)
        given = open_data(data, loaded, batch_size=batch_size, limit=limit, column=column, max_length=max_length)
        return run(loaded, given, metrics, tokens, points)

    a, b, names = side(first), side(second), (_name(first), _name(second))
    frame = compare(a, b)
    shown = frame[frame["point"].isin(_chosen(frame, points))]
    if out is not None:
        from unsmooth.report.comparison import comparison_page

        write_atomically(out, comparison_page(a, b, names, list(shown["point"])))
    if as_json:
        typer.echo(json.dumps(_plain(shown, a, b, names), indent=1))
        return
    _show(shown, a, b, names, Console())
    if out is not None:
        typer.echo(f"written to {out}")


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
    from unsmooth.cli.tables import WIDE
    from unsmooth.measure.pairing import pair
    from unsmooth.measure.registry import METRICS
    from unsmooth.report.comparison import finding, left_out

    wide = console.width >= WIDE  # a narrow terminal shows the differences only
    for tokens, rows in shown.groupby("tokens", sort=False):
        table = Table(title=f"{names[1]} − {names[0]}, tokens: {tokens}", title_justify="left")
        table.add_column("point")
        by_metric = dict(iter(rows.groupby("metric", sort=False)))
        for metric in by_metric:
            title = METRICS[str(metric)].title
            if wide:
                table.add_column(title, justify="right", style="dim")
            table.add_column("difference" if wide else title, justify="right", no_wrap=True)
        for point in dict.fromkeys(rows["point"]):
            cells = []
            for part in by_metric.values():
                row = part[part["point"] == point].iloc[0]
                mark = "*" if row["differs"] else " "
                half = (row["high"] - row["low"]) / 2
                cells += [f"{row['a']:.4g}"] if wide else []
                cells.append(f"{row['difference']:+.3g} ± {half:.2g} {mark}")
            table.add_row(point, *cells)
        console.print(table)
        for metric, part in by_metric.items():
            console.print(f"{METRICS[str(metric)].title}: {finding(part, names)}", markup=False, highlight=False)
    first = f"the first column of each pair is {names[0]}; " if wide else ""
    pairing = pair(a, b, names)
    for line in (f"{first}* marks an interval that leaves out zero", pairing.interval):
        console.print(line, style="dim", markup=False, highlight=False)
    for note in (*left_out(shown, pairing), *_notes(a, b, names)):
        console.print(f"note: {note}", style="dim", markup=False, highlight=False)


def _notes(a: Measurement, b: Measurement, names: tuple[str, str]) -> list[str]:
    """What must be said about a comparison."""
    found = []
    here, there = (m.about["data"].get("reference", "not recorded") for m in (a, b))
    if here != there:
        found.append(f"the data differ: {names[0]} on {here}, {names[1]} on {there}")
    for name, mine, other in ((names[0], a, b), (names[1], b, a)):
        alone = {cell.point for cell in mine.cells} - {cell.point for cell in other.cells}
        if alone:
            found.append(f"{len(alone)} points are in {name} only and left out")
        if mine.partial:
            found.append(f"{name} is partial: its measurement was interrupted")
    return found


def _plain(shown: pd.DataFrame, a: Measurement, b: Measurement, names: tuple[str, str]) -> dict[str, Any]:
    from unsmooth.measure.pairing import pair
    from unsmooth.report.comparison import left_out

    pairing = pair(a, b, names)
    return {
        "a": {"name": names[0], "samples": a.samples, **a.about["model"]},
        "b": {"name": names[1], "samples": b.samples, **b.about["model"]},
        "interval": pairing.interval,
        "notes": [*left_out(shown, pairing), *_notes(a, b, names)],
        "rows": json.loads(shown.to_json(orient="records")),
    }


def _name(reference: str) -> str:
    return Path(reference).stem if reference.endswith(".json") else reference
