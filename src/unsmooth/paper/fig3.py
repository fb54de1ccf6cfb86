"""Figure 3: one layer iterated with Pre-LN or Post-LN, positive or negative weights."""

from __future__ import annotations

from typing import Any

from unsmooth.errors import MissingExtraError
from unsmooth.figures.text import counted
from unsmooth.paper.item import Context, Item, Result, Table

_SEEDS, _LAYERS = 20, 128


def run(context: Context) -> Result:
    """The final log10 HFC/LFC of every combination, and the curves."""
    from unsmooth.analysis.patches import image_patches
    from unsmooth.theory.scenario import log10_table

    seeds = range(context.seed, context.seed + (context.limit or _SEEDS))
    start = image_patches(context.data[0]) if context.data else None
    cells = log10_table(seeds, _LAYERS, start)
    rows = [
        [s.form, {None: "none", "pre": "Pre-LN", "post": "Post-LN"}[s.norm], s.mode,
         "" if s.norm is None else "+" if s.sign > 0 else "−", float(values.mean()),
         float(values.std()) if len(values) > 1 else None, f"{float((values < 0).double().mean()):.0%}"]
        for s, values in cells.items()
    ]  # fmt: skip
    columns = ["H", "LayerNorm", "mode", "its weights", "log10 HFC/LFC", "std", "seeds below 1"]
    origin = f"the patches of {context.data[0]}" if context.data else "random tokens (n = 64, d = 32)"
    return Result(
        label=f"Figure 3's setting on {origin}, {counted(len(seeds), 'seed')}, {_LAYERS} iterations; the paper "
        "shows one image and does not give its sampling",
        tables=[Table(f"After {_LAYERS} iterations", columns, rows, digits=3)],
        figures={"fig3": _figure(seeds, start)},
        notes=[
            "the paper says: when the weights are negative, Pre-LN reverses the expected behaviour, Post-LN does not",
            "with Pre-LN the cells come in equal pairs, because negating H and the weights together changes nothing",
        ],
        about={"seeds": list(seeds), "start": origin},
    )


def _figure(seeds: range, start: Any) -> Any:
    from unsmooth.figures.plotly_explain import norm_impact

    try:
        return norm_impact(seeds, _LAYERS, start)
    except MissingExtraError:
        return None


ITEM = Item(
    "fig3",
    "paper",
    "Impact of layer normalisation: HFC/LFC of one repeated layer",
    needs="nothing: random layers, half a minute. --data IMAGE starts from the patches of an image, --limit sets the "
    "number of seeds (20).",
    run=run,
)
