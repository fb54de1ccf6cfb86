"""`unsmooth check RUN.json --max cosine_similarity=0.95@blocks.11.post`: limits on a measurement, for CI."""

from __future__ import annotations

import json
import math
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unsmooth.cli import options
from unsmooth.errors import OptionError, UnsmoothError, visible

if TYPE_CHECKING:
    from unsmooth.callbacks import Crossing, Limit

Run = Annotated[Path, typer.Argument(metavar="RUN.json", help="A file that `unsmooth measure --out` wrote.")]
Most = Annotated[
    list[str] | None,
    typer.Option(
        "--max",
        metavar="METRIC=VALUE[@POINTS]",
        help="The most the metric's mean may be; POINTS is a name or pattern, the residual stream without it.",
    ),
]
Least = Annotated[
    list[str] | None,
    typer.Option("--min", metavar="METRIC=VALUE[@POINTS]", help="The least the metric's mean may be."),
]
Tokens = Annotated[str | None, typer.Option(help="Token policies, with commas; all that were measured by default.")]


def command(
    run: Run, most: Most = None, least: Least = None, tokens: Tokens = None, as_json: options.Json = False
) -> None:
    """Hold a measurement against limits. Exit code 0: within; 1: crossed; 2: a bad limit, file or point."""
    try:
        crossed, limits, samples = _check(run, most or [], least or [], tokens)
    except UnsmoothError as error:
        typer.echo(f"error: {visible(str(error))}", err=True)
        raise typer.Exit(2) from None
    except Exception:  # a fault of ours: 1 would say that a limit was crossed
        traceback.print_exc()
        raise typer.Exit(2) from None
    from unsmooth.figures.text import counted

    if as_json:
        typer.echo(json.dumps(_plain(crossed, limits, samples), indent=1))
    else:
        for crossing in crossed:
            typer.echo(f"crossed: {crossing}")
        if not crossed:
            typer.echo(f"within {counted(len(limits), 'limit')} ({counted(samples, 'sample')})")
    if crossed:
        raise typer.Exit(1)


def _check(run: Path, most: list[str], least: list[str], tokens: str | None) -> tuple[list[Crossing], list[Limit], int]:
    from unsmooth.analysis import load_measurement
    from unsmooth.analysis.policies import resolve_policies
    from unsmooth.callbacks import Limit, crossings

    limits = [Limit.parse("max", text) for text in most] + [Limit.parse("min", text) for text in least]
    if not limits:
        raise OptionError("no limit was given: expected at least one --max or --min METRIC=VALUE[@POINTS]")
    measurement = load_measurement(run)
    if measurement.partial:
        typer.echo(f"note: {run} is partial, its measurement was interrupted", err=True)
    policies = None if tokens is None else resolve_policies(tokens)
    return crossings(measurement, limits, policies), limits, measurement.samples


def _plain(crossed: list[Crossing], limits: list[Limit], samples: int) -> dict[str, object]:
    return {
        "within": not crossed,
        "samples": samples,
        "limits": [_limit(limit) for limit in limits],
        "crossed": [
            {
                "limit": _limit(c.limit),
                "point": c.cell.point,
                "metric": c.cell.metric,
                "tokens": c.cell.tokens,
                "value": c.value if math.isfinite(c.value) else str(c.value),
            }
            for c in crossed
        ],
    }


def _limit(limit: Limit) -> dict[str, object]:
    value = limit.value if math.isfinite(limit.value) else str(limit.value)
    return {"bound": limit.bound, "metric": limit.metric, "value": value, "points": limit.points}
