"""`unsmooth check RUN.json --max cosine_similarity=0.95@blocks.11.post`: bounds on a measurement, for CI."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unsmooth.cli import options
from unsmooth.cli.output import print_json
from unsmooth.errors import OptionError, UnsmoothError, visible

if TYPE_CHECKING:
    from unsmooth.callbacks import Bound, Crossing

Run = Annotated[Path, typer.Argument(metavar="RUN.json", help="A file that `unsmooth measure --out` wrote.")]
Most = Annotated[
    list[str] | None,
    typer.Option(
        "--max",
        metavar="METRIC=VALUE[@POINTS]",
        help="Upper bound of the metric's mean. POINTS is a name or a pattern; without it, every point of the "
        "residual stream is checked.",
    ),
]
Least = Annotated[
    list[str] | None,
    typer.Option("--min", metavar="METRIC=VALUE[@POINTS]", help="Lower bound of the metric's mean."),
]
Tokens = Annotated[
    str | None,
    typer.Option(help="Check only these token policies, separated by commas. By default all that were measured."),
]


def command(
    run: Run, most: Most = None, least: Least = None, tokens: Tokens = None, as_json: options.Json = False
) -> None:
    """Check a measurement against bounds.

    Exit code 0: all bounds hold; 1: a bound is crossed; 2: a bound, file or point is invalid.
    """
    try:
        crossed, bounds, nearest, samples = _check(run, most or [], least or [], tokens)
    except UnsmoothError as error:
        typer.echo(f"error: {visible(str(error))}", err=True)
        raise typer.Exit(2) from None
    except Exception:  # a fault of ours: 1 would say that a bound was crossed
        traceback.print_exc()
        raise typer.Exit(2) from None
    from unsmooth.prose import counted

    if as_json:
        print_json(_plain(crossed, bounds, samples))
    else:
        for crossing in crossed:
            typer.echo(f"crossed: {crossing}")
        for said in nearest:
            typer.echo(f"within: {said}")
        typer.echo(f"{len(nearest)} of {counted(len(bounds), 'bound')} kept ({counted(samples, 'sample')})")
    if crossed:
        raise typer.Exit(1)


def _check(
    run: Path, most: list[str], least: list[str], tokens: str | None
) -> tuple[list[Crossing], list[Bound], list[str], int]:
    """What is beyond its bound, all bounds, for each that holds what comes nearest to it, and the samples."""
    from unsmooth.analysis import load_measurement
    from unsmooth.analysis.policies import resolve_policies
    from unsmooth.callbacks import Bound, crossings
    from unsmooth.callbacks.bounds import nearest

    bounds = [Bound.parse("max", text) for text in most] + [Bound.parse("min", text) for text in least]
    if not bounds:
        raise OptionError("no bound was given: expected at least one --max or --min METRIC=VALUE[@POINTS]")
    measurement = load_measurement(run)
    if measurement.partial:
        typer.echo(f"note: {run} is partial, its measurement was interrupted", err=True)
    policies = None if tokens is None else resolve_policies(tokens)
    crossed = crossings(measurement, bounds, policies)
    kept = [bound for bound in bounds if bound not in {each.bound for each in crossed}]
    return crossed, bounds, [nearest(measurement, bound, policies) for bound in kept], measurement.samples


def _plain(crossed: list[Crossing], bounds: list[Bound], samples: int) -> dict[str, object]:
    return {
        "within": not crossed,
        "samples": samples,
        "bounds": [_bound(bound) for bound in bounds],
        "crossed": [
            {
                "bound": _bound(c.bound),
                "point": c.cell.point,
                "metric": c.cell.metric,
                "tokens": c.cell.tokens,
                "value": c.value,
            }
            for c in crossed
        ],
    }


def _bound(bound: Bound) -> dict[str, object]:
    return {"side": bound.side, "metric": bound.metric, "value": bound.value, "points": bound.points}
