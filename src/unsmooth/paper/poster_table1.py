"""The poster's Table 1: how often each type of eigenvalue dominates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from unsmooth.analysis.explaining.dominating_types import dominating_types
from unsmooth.analysis.explaining.tables import type_shares
from unsmooth.paper.depth import all_named, device_of, shipped_models, spread
from unsmooth.paper.item import Context, Item, Result, Table, Value
from unsmooth.paper.pretrained import PUBLISHED
from unsmooth.paper.published import published
from unsmooth.sources import load_model, open_data

if TYPE_CHECKING:
    import pandas as pd

RANDOM = "ViT-B/16, random weights=timm:vit_base_patch16_224"
# the published column that a model stands beside, by what its name says
_BESIDE = {
    "random": "ViT-B/16, random",
    "DeiT-B": "DeiT-B/16, ImageNet",
    "ViT-B": "ViT-B/16, ImageNet",
    "plain": "ViT-Ti, CIFAR-100",
    "smoothing": "ViT-Ti+, CIFAR-100",
    "sharpening": "ViT-Ti-, CIFAR-100",
}
_LIMIT = 4


def run(context: Context) -> Result:
    """Count types for random weights, the shipped models and the ones that the user named."""
    asked = PUBLISHED[:2] if context.models == ("published",) else context.models or shipped_models()
    models = all_named((RANDOM, *asked))
    data = context.data or ("bundled",)
    paths = (data[0], *spread(data, len(models) - 1))  # the first model is ours and takes the first of the user's data
    limit = context.samples or _LIMIT
    rows: list[list[Value]] = []
    for number, ((name, reference), path) in enumerate(zip(models, paths, strict=True)):
        shares = _shares(reference, path, context, limit, random_init=number == 0)
        rows.append([name, *_cells(shares), *_published(name)])
    shown = {column for name, _ in models if (column := _column(name)) is not None}
    rows += [[column, *[None] * 7, *_numbers(column)] for column in published("poster-table1")["columns"]
             if column not in shown]  # fmt: skip
    columns = ("model", "type (1) %", "95 %", "type (2) %", "95 %", "neither endpoint %", "both tie %",
               "heads × inputs", "published (1) %", "published (2) %")  # fmt: skip
    return Result(
        label=f"{limit} inputs of {', '.join(data)} per model; the published ones say neither inputs nor checkpoints",
        tables=[Table("Dominating eigenvalues, bare H and A of each head", columns, rows)],
        notes=[
            "type (2) here is every dominating pair with i ≠ n; `neither endpoint` is the part of it whose λ_A is "
            "complex or not the smallest, which the poster's two rows leave out",
            "both tie where λ_H = 0 dominates: 1 + 0·λ_A is 1 for every λ_A",
            "the 95 % interval is Student's over inputs, a share's rounding included; layers and heads do not vary",
        ],
        about={
            "models": [f"{name}={reference}" for name, reference in models],
            "data": list(data),
            "limit": limit,
            "seed": context.seed,
        },
    )


def _shares(reference: str, data: str, context: Context, limit: int, random_init: bool) -> pd.DataFrame:
    torch.manual_seed(context.seed)
    loaded = load_model(reference, random_init=random_init, device=device_of(context))
    batches = open_data(data, loaded, batch_size=context.batch_size, samples=limit)
    return type_shares(dominating_types(loaded.model, batches)).set_index("kind")


def _cells(shares: pd.DataFrame) -> list[Value]:
    found: list[Value] = []
    for kind in ("smoothing", "sharpening"):
        row: Any = shares.loc[kind]
        interval = f"{row['low']:.1%} – {row['high']:.1%}" if row["low"] <= row["high"] else "one input"
        found += [100 * float(row["share"]), interval]
    neither, tied = float(shares["neither"]["sharpening"]), float(shares["share"]["mixed"])
    return [*found, 100 * neither, 100 * tied, int(shares["count"].iloc[0])]


def _published(name: str) -> list[Value]:
    column = _column(name)
    return [None, None] if column is None else _numbers(column)


def _column(name: str) -> str | None:
    """The published column that a model stands beside."""
    return next((column for word, column in _BESIDE.items() if word in name), None)


def _numbers(column: str) -> list[Value]:
    table = published("poster-table1")
    number = table["columns"].index(column)
    return [float(table["smoothing"][number]), float(table["sharpening"][number])]


ITEM = Item(
    "poster-table1",
    "poster",
    "Distribution of dominating eigenvalues: type (1) smoothing against type (2) sharpening",
    needs="nothing for ViT-B/16 with random weights and the models that ship with unsmooth, on the bundled pictures "
    "(about a minute). --model [NAME=]REFERENCE --data PATH for others; --model published --data IMAGES takes ViT-B "
    "and DeiT-B from the hub.",
    run=run,
)
