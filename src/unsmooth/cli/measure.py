"""`unsmooth measure MODEL --data PATH`: how smooth are the features, layer by layer."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unsmooth.cli import options
from unsmooth.cli.groups import ungrouped
from unsmooth.cli.output import FileOptions
from unsmooth.cli.progress import Interruption, interruptible, track
from unsmooth.cli.values import numbers
from unsmooth.errors import OptionError

if TYPE_CHECKING:
    from unsmooth.analysis import Measurement
    from unsmooth.analysis.processes import Team
    from unsmooth.sources import Data, LoadedModel

Metrics = Annotated[
    str, typer.Option(help="A preset (paper, paper-spectral, rankme, …) or names of metrics, separated by commas.")
]
Points = Annotated[
    str,
    typer.Option(
        help="Where to measure: all, residual (the residual stream), or names and patterns of points, "
        "separated by commas."
    ),
]
PerSample = Annotated[
    bool,
    typer.Option(
        "--per-sample/--means-only",
        help="Whether --out keeps the values of each sample, which `compare` pairs, or only means, in a smaller file.",
    ),
]


Features = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="PATH",
        help="Measure saved features instead of a model: a file or folder with one tensor per layer. Repeatable.",
    ),
]
LayerIds = Annotated[
    str | None, typer.Option(help="With --features from vLLM: the layer ids that were requested, separated by commas.")
]


@ungrouped
def command(
    model: options.MaybeModel = None,
    data: options.MaybeDataPath = None,
    features: Features = None,
    layer_ids: LayerIds = None,
    metrics: Metrics = "paper",
    tokens: options.Tokens = "all",
    points: Points = "all",
    reading: options.DataOptions = options.DataOptions(),
    loading: options.ModelOptions = options.ModelOptions(),
    degenerate: options.Degenerate = "error",
    rank_budget: options.RankBudget = None,
    per_sample: PerSample = True,
    output: FileOptions = FileOptions(),
) -> None:
    """Measure how similar tokens are, at every layer and sub-layer.

    The metrics are HFC/LFC (the distance of the tokens from their mean, relative to the size of the mean), cosine
    similarity and effective rank.
    """
    if features or model is None or data is None:
        if not features:
            raise OptionError("expected a model and --data PATH, or --features PATH of features that are saved")
        if (data, points, reading, loading) != (None, "all", options.DataOptions(), options.ModelOptions()):
            raise OptionError(
                "features that are saved are measured as they are: leave out --data, --points, and all options of "
                "loading a model and reading data (--samples, --device, …)"
            )
        found = _saved_features(model, features, layer_ids, metrics, tokens, degenerate, rank_budget, output)
        _tell(found, output, per_sample)
        return
    if layer_ids is not None:
        raise OptionError("--layer-ids names the layers of --features FILE: a model has its own, leave it out")
    from unsmooth.analysis.processes import launched

    with launched() as team:
        if team.first:
            output.check()
        loaded = loading.of(team).load(model)
        batches = reading.open(data, loaded)
        with interruptible() as stopped:
            measurement = run(loaded, batches, metrics, tokens, points, degenerate, stopped, rank_budget, team)
        if team.first:
            _tell(measurement, output, per_sample)
    stopped.leave()


def _saved_features(
    model: str | None,
    features: list[Path],
    layer_ids: str | None,
    metrics: str,
    tokens: str,
    degenerate: str,
    rank_budget: str | None,
    output: FileOptions,
) -> Measurement:
    from unsmooth.analysis import measure_features

    options.refuse_several("saved features are measured")
    output.check()
    layers = None if layer_ids is None else numbers("--layer-ids", layer_ids, int, "1,2,3")
    found = measure_features(
        features, metrics, tokens, layers=layers, name=model, degenerate=degenerate,
        rank_budget=rank_budget,
    )  # fmt: skip
    found.about = replace(found.about, command=options.command_line())
    return found


def _tell(found: Measurement, output: FileOptions, per_sample: bool) -> None:
    from unsmooth.cli.tables.measured import show

    output.finish(found.to_json, partial(show, found), (output.out, lambda path: found.save(path, per_sample)))


def run(
    loaded: LoadedModel,
    batches: Data,
    metrics: str,
    tokens: str,
    points: str,
    degenerate: str,
    stopped: Interruption,
    rank_budget: str | None = None,
    team: Team | None = None,
) -> Measurement:
    """Measure with a progress bar; what ends it early marks the result partial."""
    from unsmooth.analysis import Measurer, Origin
    from unsmooth.analysis.processes import Team

    team = team or Team()
    with Measurer(
        loaded, metrics, tokens, points if points in ("all", "residual") else points.split(","),
        degenerate=degenerate, rank_budget=rank_budget, origin=Origin.of(loaded, batches, options.command_line()),
    ) as measurer:  # fmt: skip
        for _, batch in team.own(stopped.until(track(batches, "measuring", batches.samples, quiet=not team.first))):
            measurer.update(batch)
    stopped.check(measurer.batches, team)
    return team.measured(measurer.result(partial=bool(stopped)))
