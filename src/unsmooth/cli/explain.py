"""`unsmooth explain MODEL --data PATH`: why attention smooths or sharpens, and whether it does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from unsmooth.cli import options
from unsmooth.cli.groups import ungrouped
from unsmooth.cli.progress import Interruption, interruptible, track

if TYPE_CHECKING:
    from unsmooth.analysis import Explanation
    from unsmooth.analysis.processes import Team
    from unsmooth.sources import Data, LoadedModel

Tokens = Annotated[
    str, typer.Option(help="Token policies, with commas: all, patches, content, no-outliers. Whose steps are measured.")
]
Layers = Annotated[str | None, typer.Option(help="Layers, with commas (0,5,11); all by default.")]
Spectra = Annotated[
    int, typer.Option(min=0, help="Inputs whose attention spectra are computed: O(n³) a head, free if causal.")
]
MaxProducts = Annotated[int, typer.Option(min=1, help="The longest Krylov search for a layer's exponent.")]
LayerSpectrum = Annotated[
    bool | None,
    typer.Option(help="All eigenvalues of each layer's sum of heads, a dense problem; by default up to width 1,024."),
]
Bare = Annotated[bool, typer.Option("--no-fold", help="Bare W_V W_proj with step 1: norms and LayerScale left out.")]
Figures = Annotated[Path | None, typer.Option(help="Write the figures into this folder, as SVG, PNG and PDF.")]


@ungrouped
def command(
    model: options.Model,
    data: options.DataPath,
    tokens: Tokens = "all",
    layers: Layers = None,
    spectra: Spectra = 8,
    max_products: MaxProducts = 240,
    layer_spectrum: LayerSpectrum = None,
    heads_in_turn: options.HeadsInTurn = None,
    no_fold: Bare = False,
    reading: options.DataOptions = options.DataOptions(samples=16),
    loading: options.ModelOptions = options.ModelOptions(),
    figures: Figures = None,
    out: options.Out = None,
    as_json: options.Json = False,
) -> None:
    """Explain every attention layer: spectra of H and A, what dominates, exponents, predicted against measured."""
    from unsmooth.analysis.policies import resolve_policies
    from unsmooth.analysis.processes import launched
    from unsmooth.figures import check_folder
    from unsmooth.sources.files import check_writable

    chosen = layer_list(layers)
    resolve_policies(tokens)
    with launched() as team:
        if out is not None and team.first:
            check_writable(out)
        if figures is not None and team.first:
            check_folder(figures)
        loaded = loading.of(team).load(model)
        batches = reading.open(data, loaded)
        settings = {
            "tokens": tokens, "layers": chosen, "spectra": spectra, "max_products": max_products,
            "layer_spectrum": layer_spectrum, "heads_in_turn": heads_in_turn, "folded": not no_fold,
        }  # fmt: skip
        with interruptible() as stopped:
            found = run(loaded, batches, reading.batch_size, settings, stopped, team)
        if team.first:
            _show(found, out, figures, as_json)
    stopped.leave()


def _show(found: Explanation, out: Path | None, figures: Path | None, as_json: bool) -> None:
    if out is not None:
        found.save(out)
    if figures is not None:
        write_figures(found, figures)
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=1))
    else:
        from unsmooth.cli.tables_explain import show

        show(found, Console())
        for path in (out, figures):
            if path is not None:
                typer.echo(f"written to {path}")


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
    team.check(explainer.batches)
    return team.explained(explainer.result(partial=bool(stopped)), batch_size)


def write_figures(found: Explanation, folder: Path) -> None:
    """Eigenvalues, exponents, predicted against measured, heads and types."""
    from unsmooth.figures import explanation_figures, save_figures

    save_figures(explanation_figures({found.about.model.name: found}), folder)


def layer_list(text: str | None) -> list[int] | None:
    """`"0,5,11"` as numbers.

    >>> layer_list("0, 5"), layer_list(None)
    ([0, 5], None)
    """
    from unsmooth.errors import OptionError

    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise OptionError(f"expected layer numbers separated by commas (0,5,11), got {text!r}") from None
