"""`unsmooth explain MODEL --data PATH`: why attention smooths or sharpens, and whether it does."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unsmooth.cli import options
from unsmooth.cli.groups import ungrouped
from unsmooth.cli.output import OutputOptions
from unsmooth.cli.progress import Interruption, interruptible, track

if TYPE_CHECKING:
    from unsmooth.analysis import Explanation
    from unsmooth.analysis.processes import Team
    from unsmooth.sources import Data, LoadedModel

Tokens = Annotated[
    str, typer.Option(help="Token policies, with commas: all, patches, content, no-outliers. Whose steps are measured.")
]
Spectra = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Inputs whose attention spectra are computed: O(n³) a head, free if causal. By default 8, fewer above "
        "512 tokens, none above 1,024.",
    ),
]
MaxProducts = Annotated[int, typer.Option(min=1, help="The longest Krylov search for a layer's exponent.")]
LayerSpectrum = Annotated[
    bool | None,
    typer.Option(help="All eigenvalues of each layer's sum of heads, a dense problem; by default up to width 1,024."),
]
Full = Annotated[bool, typer.Option("--full", help="Print every table: constants, heads, bare H, all predictors.")]
Bare = Annotated[bool, typer.Option("--no-fold", help="Bare W_V W_proj with step 1: norms and LayerScale left out.")]


@ungrouped
def command(
    model: options.Model,
    data: options.DataPath,
    tokens: Tokens = "all",
    layers: options.Layers = "all",
    spectra: Spectra = None,
    max_products: MaxProducts = 240,
    layer_spectrum: LayerSpectrum = None,
    heads_in_turn: options.HeadsInTurn = None,
    no_fold: Bare = False,
    full: Full = False,
    reading: options.DataOptions = options.DataOptions(samples=16),
    loading: options.ModelOptions = options.ModelOptions(),
    output: OutputOptions = OutputOptions(),
) -> None:
    """Explain every attention layer: spectra of H and A, what dominates, exponents, predicted against measured."""
    from unsmooth.analysis.policies import resolve_policies
    from unsmooth.analysis.processes import launched
    from unsmooth.cli.tables.explained import show
    from unsmooth.figures import explanation_figures

    resolve_policies(tokens)
    with launched() as team:
        if team.first:
            output.check()
        loaded = loading.of(team).load(model)
        batches = reading.open(data, loaded)
        settings = {
            "tokens": tokens, "layers": layers, "spectra": spectra, "max_products": max_products,
            "layer_spectrum": layer_spectrum, "heads_in_turn": heads_in_turn, "folded": not no_fold,
        }  # fmt: skip
        with interruptible() as stopped:
            found = run(loaded, batches, reading.batch_size, settings, stopped, team)
        if team.first:
            output.tell(found, lambda e: explanation_figures({e.about.model.name: e}), partial(show, full=full))
    stopped.leave()


def run(
    loaded: LoadedModel,
    batches: Data,
    batch_size: int,
    settings: dict[str, Any],
    stopped: Interruption,
    team: Team,
) -> Explanation:
    """Explain with a progress bar; what ends it early marks the result partial."""
    from unsmooth.analysis import Explainer, Origin

    with Explainer(loaded, **settings, origin=Origin.of(loaded, batches, options.command_line())) as explainer:
        shown = track(batches, "explaining", batches.samples, quiet=not team.first)
        for number, batch in team.own(stopped.until(shown)):
            explainer.inputs = number * batch_size
            explainer.update(batch)
    stopped.check(explainer.batches, team)
    return team.explained(explainer.result(partial=bool(stopped)), batch_size)
