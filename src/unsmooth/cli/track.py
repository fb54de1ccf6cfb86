"""`unsmooth track FOLDER --data PATH`: how smoothness changes over a training, checkpoint by checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from unsmooth.cli import options
from unsmooth.cli.groups import ungrouped
from unsmooth.cli.measure import Metrics, run
from unsmooth.cli.output import print_json
from unsmooth.cli.progress import interruptible
from unsmooth.cli.tables.layout import titled

if TYPE_CHECKING:
    from unsmooth.analysis.track import Checkpoint
    from unsmooth.sources import LoadedModel

References = Annotated[
    list[str],
    typer.Argument(
        metavar="CHECKPOINT…",
        help="A folder of checkpoints (checkpoint-500, …), or several checkpoints: folders, or hf:NAME@REVISION.",
    ),
]
Page = Annotated[Path, typer.Option("--out", help="File of the page. Results are saved beside it.")]


@ungrouped
def command(
    checkpoints: References,
    data: options.DataPath,
    out: Page = Path("track.html"),
    metrics: Metrics = "paper",
    tokens: options.Tokens = "all",
    reading: options.DataOptions = options.DataOptions(samples=64),
    loading: options.PlaceOptions = options.PlaceOptions(),
    as_json: options.Json = False,
) -> None:
    """Measure every checkpoint of a training run on the same data, and write a page with curves over the steps.

    Checkpoints that were measured before are not measured again.
    """
    from unsmooth.analysis.processes import launched
    from unsmooth.analysis.track import check_alike, find_checkpoints, tracked
    from unsmooth.page.track import track_page
    from unsmooth.sources.files import check_writable, write_result

    found = find_checkpoints(checkpoints)
    settings = {"data": str(data), "metrics": metrics, "tokens": tokens, "dtype": loading.dtype, **reading.reading}
    done: list[Checkpoint] = []
    with launched() as team, interruptible() as stopped:
        if team.first:
            check_writable(out)
        where = loading.of(team)
        for reference, step in found:
            if team.anybody(bool(stopped)):
                break

            def measure(loaded: LoadedModel) -> Any:
                given = reading.open(data, loaded)
                return run(loaded, given, metrics, tokens, "residual", "error", stopped, team=team)

            def load(reference: str = reference) -> LoadedModel:
                return where.open(reference)

            kept = out.with_suffix(".results")
            done.append(tracked(reference, step, load, measure, settings, kept, team))
    if done and team.first:  # else stopped before the first was finished
        check_alike(done)
        name = done[0].measurement.about.model.class_name
        write_result(out, track_page(done, f"{name} over its training", options.command_line()))
        _tell(done, out, as_json)
    stopped.leave()


def _tell(done: list[Checkpoint], out: Path, as_json: bool) -> None:
    if as_json:
        print_json([_plain(checkpoint) for checkpoint in done])
    else:
        Console().print(_table(done))
        typer.echo(f"written to {out}, results in {out.with_suffix('.results')}")


def _ends(checkpoint: Checkpoint) -> list[tuple[str, str, float, float]]:
    return [(metric, policy, a.mean, b.mean) for metric, policy, a, b in checkpoint.measurement._ends()]


def _plain(checkpoint: Checkpoint) -> dict[str, Any]:
    ends = [{"metric": m, "tokens": t, "first": a, "last": b} for m, t, a, b in _ends(checkpoint)]
    return {"reference": checkpoint.reference, "step": checkpoint.step, "ends": ends, "negative": checkpoint.negative}


def _table(done: list[Checkpoint]) -> Table:
    from unsmooth.cli.tables.layout import written
    from unsmooth.metrics.registry import metric_named

    names = (f"{metric_named(metric).title} ({policy})" for metric, policy, *_ in _ends(done[0]))
    table = titled("First input → last layer, mean over samples", ("step", *names))
    for checkpoint in done:
        ends = (" → ".join(written(value, ".4g") for value in pair) for _, _, *pair in _ends(checkpoint))
        table.add_row(str(checkpoint.step), *ends)
    return table
