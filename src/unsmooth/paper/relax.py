"""Ours: from the theorem to a real block, one assumption relaxed at a time; HFC/LFC predicted and measured.

The paper's limitations ask for symmetric A and H; its readers ask what happens without them. Random layers climb the
rungs of `theory.ladder`; then come the blocks of trained models.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import fmean, stdev

import torch
from torch import Tensor

from unsmooth.analysis.layer_weights import cast_weights, fold_weights
from unsmooth.figures.ladder import ladder as ladder_figure
from unsmooth.figures.ladder import rightness
from unsmooth.models import capture_attention, hook_points, view
from unsmooth.paper.depth import shipped_models
from unsmooth.paper.item import Context, Item, Result, Table, Value
from unsmooth.sources import load_model, open_data
from unsmooth.theory.folding import statistics
from unsmooth.theory.ladder import DIM, HEADS, LAYERS, ROUNDING, RUNGS, TOKENS, Draw, compared, ladder
from unsmooth.theory.scenario import MODES, Mode

SEEDS = 20
REPEATED, ONCE = "trained block, repeated", "trained block, run once"


def _trained(context: Context) -> Iterator[Draw]:
    """Every block of the shipped sharpening and smoothing model, repeated and run once, on a picture."""
    references = dict(reference.split("=", 1) for reference in shipped_models())
    for mode in MODES:
        chosen = sorted((name for name in references if name.endswith(f"-{mode}")), key=len)
        if not chosen:
            continue
        # the shortest name has no share of the data in it: trained on all
        loaded = load_model(references[chosen[0]], dtype=torch.float64)
        (batch,) = open_data("bundled", loaded, batch_size=1, samples=1)
        assert isinstance(batch, Tensor)
        yield from blocks(loaded.model, batch.double(), mode, context)


def blocks(model: torch.nn.Module, batch: Tensor, mode: Mode, context: Context) -> Iterator[Draw]:
    """Each block of a pre-norm vision model on one input: its own weights, matrices, constants and MLP."""
    seen = view(model)
    before: dict[int, Tensor] = {}
    attention: dict[int, Tensor] = {}
    points = [f"blocks.{layer.index}.pre" for layer in seen.layers]
    with (
        torch.no_grad(),
        hook_points(seen, points, lambda point, x: before.update({int(point.split(".")[1]): x})),
        capture_attention(seen, attention.__setitem__),
    ):
        model(batch)
    for layer in context.track(seen.layers, f"blocks trained for {mode}", len(seen.layers)):
        folded, x = fold_weights(cast_weights(layer.weights(), torch.float64)), before[layer.index][0]
        scale = float(statistics(folded.norm, x).mean())

        def block(state: Tensor, module: torch.nn.Module = layer.block) -> Tensor:
            with torch.no_grad():
                after: Tensor = module(state[None])[0]
            return after

        for rung, times in ((REPEATED, LAYERS), (ONCE, 1)):
            yield compared(rung, mode, x, block, attention[layer.index][0], folded.pair, scale, times)


def run(context: Context) -> Result:
    """Random layers for every rung, then the blocks of the shipped models."""
    seeds = range(context.seed, context.seed + (context.samples or SEEDS))
    found = [draw for seed in context.track(seeds, "random layers", len(seeds)) for draw in ladder(seed)]
    trained = list(_trained(context))
    return Result(
        label=f"{len(seeds)} random layers of {TOKENS} tokens and {DIM} features on each rung, repeated {LAYERS} times"
        + (f"; then {len(trained) // 2} trained blocks on a picture" if trained else ""),
        tables=[table_of([*found, *trained])],
        figures={"relax": ladder_figure(grouped([*found, *trained]))},
        notes=[
            "predicted: the theory's layer X + s Σ A_h X W̃_h, everything linear folded in, A and the LayerNorm's mean "
            "scale s frozen at the start, repeated as often; measured: the layer with all that its rung has",
            "right verdict: HFC/LFC ends above its start where the prediction says so, below it where it does not; "
            "Corollary 3 goes by the eigenvalues of H alone, γ by the folded layer",
            f"± is the standard deviation over layers; values end at ±{ROUNDING:g}, where rounding begins",
            *([] if trained else ["no trained model is here: the rungs end with random layers"]),
        ],
        about={"seeds": list(seeds), "tokens": TOKENS, "dim": DIM, "heads": HEADS, "layers": LAYERS},
    )


def table_of(draws: Sequence[Draw]) -> Table:
    """One row for each rung and mode."""
    rows: list[list[Value]] = []
    for (rung, mode), group in grouped(draws).items():
        values = ([d.start for d in group], [d.predicted for d in group], [d.measured for d in group])
        rows.append([rung, mode, *map(_spread, values), *(f"{share:.0%}" for share in rightness(group)), len(group)])
    columns = ["setting", "mode", "start", "predicted", "measured", "Corollary 3 right", "γ right", "n"]
    return Table("log10 HFC/LFC, and how often a verdict is right", columns, rows)


def grouped(draws: Sequence[Draw]) -> dict[tuple[str, str], list[Draw]]:
    """By rung and mode, in their order."""
    groups: dict[tuple[str, str], list[Draw]] = {}
    for rung in (*RUNGS, REPEATED, ONCE):
        for mode in MODES:
            if chosen := [d for d in draws if (d.rung, d.mode) == (rung, mode)]:
                groups[rung, mode] = chosen
    return groups


def _spread(values: Sequence[float]) -> str:
    return f"{fmean(values):+.1f} ± {stdev(values) if len(values) > 1 else math.nan:.1f}"


ITEM = Item(
    "relax",
    "ours",
    "From the theorem to a real block: HFC/LFC predicted and measured as one assumption after another falls",
    needs="nothing: random layers and the models that ship with unsmooth, about a minute. --samples sets the number of "
    "random layers on each rung (20), --seed their draws.",
    run=run,
)
