"""Figure 3: one layer iterated with Pre-LN or Post-LN, positive or negative weights."""

from __future__ import annotations

from unsmooth.figures import norm_impact
from unsmooth.paper.item import Context, Item, Result, Table
from unsmooth.prose import counted
from unsmooth.sources.patches import image_patches
from unsmooth.theory.scenario import log10_curves

_SEEDS, _LAYERS = 20, 128


def run(context: Context) -> Result:
    """The final log10 HFC/LFC of every combination, and the curves."""
    seeds = range(context.seed, context.seed + (context.samples or _SEEDS))
    start = image_patches(context.data[0]) if context.data else None
    curves = log10_curves(seeds, _LAYERS, start)
    rows = [
        [s.form, {None: "none", "pre": "Pre-LN", "post": "Post-LN"}[s.norm], s.mode,
         "" if s.norm is None else "+" if s.sign > 0 else "−", float(values.mean()),
         float(values.std()) if len(values) > 1 else None, f"{float((values < 0).double().mean()):.0%}"]
        for s, values in ((s, found[:, -1]) for s, found in curves.items())
    ]  # fmt: skip
    columns = ["H", "LayerNorm", "mode", "its weights", "log10 HFC/LFC", "std", "seeds below 1"]
    origin = f"the patches of {context.data[0]}" if context.data else "random tokens (n = 64, d = 32)"
    return Result(
        label=f"Figure 3's setting on {origin}, {counted(len(seeds), 'seed')}, {_LAYERS} iterations; the paper "
        "shows one image and does not give its sampling",
        tables=[Table(f"After {_LAYERS} iterations", columns, rows, digits=3)],
        figures={"fig3": norm_impact(curves)},
        notes=[
            "the paper says: when the weights are negative, Pre-LN reverses the expected behaviour, Post-LN does not",
            "with Pre-LN the cells come in equal pairs, because negating H and the weights together changes nothing",
        ],
        about={"seeds": list(seeds), "start": origin},
    )


ITEM = Item(
    "fig3",
    "paper",
    "Impact of layer normalisation: HFC/LFC of one repeated layer",
    needs="nothing: random layers, half a minute. --data IMAGE starts from the patches of an image, --samples sets the "
    "number of seeds (20).",
    run=run,
)
