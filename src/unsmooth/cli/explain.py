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

Spectra = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Compute the spectra of attention matrices for this many inputs. This takes O(n³) per head, "
        "unless the model is causal. By default 8, fewer above 512 tokens, none above 1,024.",
    ),
]
MaxProducts = Annotated[
    int, typer.Option(min=1, help="Most matrix products in the Krylov search for the exponent of a layer.")
]
LayerSpectrum = Annotated[
    bool | None,
    typer.Option(
        help="Compute all eigenvalues of the sum of a layer's heads (a dense eigenproblem). By default up to "
        "width 1,024."
    ),
]
Full = Annotated[
    bool,
    typer.Option(
        "--full", help="Print all tables, also those of constants, heads, H before folding, and all predictors."
    ),
]
Bare = Annotated[
    bool,
    typer.Option(
        "--no-fold", help="Use W_V W_proj as it is, with step size 1, without folding in norms and LayerScale."
    ),
]


@ungrouped
def command(
    model: options.Model,
    data: options.DataPath,
    tokens: options.Tokens = "all",
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
    """Explain from the weights whether each attention layer should smooth or sharpen, and compare with what it does.

    H is the product of a layer's value and projection weights, A its attention matrix. The tables show the smoothing
    exponent γ beside the measured change of HFC/LFC, the eigenvalues of H, and which type of eigenvalues dominates.
    """
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
