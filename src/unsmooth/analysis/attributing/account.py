"""The account that joins tokens of extreme norm with the metric: the model runs again without what writes them.

Which tokens are meant, and which MLP writes them, follows from all inputs together, so that neither their order nor
how they are split into batches and processes changes it. That takes a second walk over the data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from itertools import chain, pairwise
from typing import Any

import torch
from torch import Tensor

from unsmooth.analysis.attributing.attributor import Attributor
from unsmooth.analysis.attributing.carriers import AS_IT_IS, LEFT_OUT, Account, CarrierPass
from unsmooth.analysis.attributing.removal import removed
from unsmooth.analysis.attributing.shares import Part
from unsmooth.analysis.measuring.extremes import Outliers
from unsmooth.metrics.moments import Moments
from unsmooth.models import hook_points
from unsmooth.models.forward import call, evaluating, to_model


def take_account(
    attributor: Attributor,
    batches: Iterable[Any],
    found: Outliers | None,
    merged: Callable[[list[Moments]], list[Moments]] = list,
) -> None:
    """Where an MLP writes the outliers: runs as the model is, and without that, on the batches that were attributed.

    `found` says which outliers: those of the inputs that were attributed (`CarrierSums.outliers`), or those of more
    inputs that were measured. Where other processes have other batches, `merged` adds what they found.
    """
    sums = attributor.carriers
    if sums is None or found is None or found.layer is None or found.maker != "MLP":
        return
    depth, writer = len(attributor.view.layers), Part(found.layer, "mlp")
    # by run: ln HFC/LFC of all tokens and of the others, at the input and after each layer; attention in each layer,
    # and what it would be if it were uniform
    tables = {run: [Moments() for _ in range(2 * (depth + 1) + 2 * depth)] for run in (AS_IT_IS, LEFT_OUT)}
    counted, attributor.inputs = attributor.inputs, 0  # they are counted as in the first walk
    try:
        for batch in batches:
            attributor.inputs += _add(attributor, tables, batch, writer, found.point)
    finally:
        attributor.inputs = counted
    rows = merged(list(chain(*tables.values())))
    if not rows[0].count:
        return
    means = [row.mean for row in rows]
    curves, sink, uniform = {}, {}, []
    for run, start in zip(tables, (0, len(means) // 2), strict=True):
        ends = [start, *(start + 2 * (depth + 1) + more for more in (-depth - 1, 0, depth, 2 * depth))]
        curves[run], curves[f"{run}, others"], sink[run], uniform = (means[a:b] for a, b in pairwise(ends))
    sums.account = Account(
        found.layer, found.point, found.ratio, found.position, found.everywhere, rows[0].count, curves, sink,
        found.makers, found.in_all, found.several, uniform,
    )  # fmt: skip


def _add(attributor: Attributor, tables: dict[str, list[Moments]], batch: Any, writer: Part, point: str) -> int:
    """Both runs on the inputs of a batch that have outliers at the point; how many inputs count in all."""
    v = attributor.view
    inputs = to_model(batch, v.model)
    tokens, left = attributor.tokens_of(inputs), attributor.left()
    first = CarrierPass(tokens)

    def see(name: str, x: Tensor) -> None:
        first.receive(name, x[:left])

    with evaluating(v.model), hook_points(v, [point], see):
        call(v.model, inputs)
    sinks = first.outlying(point)
    chosen = (sinks.any(-1) & ((first.kept(sinks[..., None]) & ~sinks).sum(-1) > 1)).cpu()
    if not bool(chosen.any()):
        return len(sinks)
    runs = {run: CarrierPass(tokens, sinks) for run in tables}
    with attributor:
        for run, seen in runs.items():
            attributor.looking = seen
            without = removed(attributor, writer, batch, only=sinks) if run == LEFT_OUT else nullcontext()
            with attributor.showing(inputs), without:
                call(v.model, inputs)
    for seen in runs.values():
        chosen &= torch.stack(seen.ratios).isfinite().all(0).all(0)
    for run, seen in runs.items():
        curves = torch.stack(seen.ratios)[..., chosen].transpose(0, 1).flatten(0, 1)
        attended = [seen.attention[i][chosen, :, 1].mean(-1) for i in sorted(seen.attention)]
        uniform = [seen.uniform[i][chosen, 1] for i in sorted(seen.uniform)]
        for moments, values in zip(tables[run], [*curves, *attended, *uniform], strict=True):
            moments.update(values)
    return len(sinks)
