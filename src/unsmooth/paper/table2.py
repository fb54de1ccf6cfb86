"""Table 2: change in effective rank by kind of layer, CIFAR-100 columns."""

from __future__ import annotations

from unsmooth.paper.changes import run_table
from unsmooth.paper.item import Context, Item, Result


def run(context: Context) -> Result:
    """Our models beside the published columns."""
    return run_table("table2", "effective_rank", context)


ITEM = Item(
    "table2",
    "paper",
    "Change in effective rank by kind of layer (LayerNorm, Attention, MLP), CIFAR-100 columns",
    needs="the shipped models, measured now (records do not hold the norms' outputs), on the bundled pictures unless "
    "--data names CIFAR-100's test parquet; seconds. --model NAME=REFERENCE for your own, repeatable for several seeds "
    "(name or configuration must tell plain, sharpening or smoothing), or a RUN.json of `unsmooth measure`.",
    run=run,
)
