"""Dropping a sink: the MLP that makes one token enormous no longer writes in that token's direction.

A massive activation (Sun et al. 2024) is one token, often the first, to which one MLP writes a vector many times as
long as all other tokens; attention then rests on it. With u the unit vector of what the MLP writes there, the edit
replaces what it writes, y, by `y − s (u·y) u`: for every token, in its last weights, nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unsmooth.errors import DataError, WeightsError
from unsmooth.models import ModelView, view
from unsmooth.models.forward import call, each_batch, evaluating, kept_tokens, to_model
from unsmooth.models.hooks import hook_points
from unsmooth.models.storage import refuse_sharded

FACTOR = 8.0  # how many times the median token's norm what an MLP writes must have to make a sink


@dataclass(frozen=True)
class Sink:
    """Which MLP writes it: layer, direction, times the median norm of what tokens carry there, last linear map."""

    layer: int
    direction: Float[Tensor, " dim"]
    times: float
    last: nn.Module


def find_sink(model: nn.Module, batches: Iterable[Any]) -> Sink:
    """The MLP that writes the longest vector, by the median norm of the stream that it writes to.

    DataError where no MLP writes `FACTOR` times the median to any token: there is no sink to drop.
    """
    v = view(model)
    if not all(layer.spot("mlp") for layer in v.layers):
        raise WeightsError(f"family {v.family.name!r} shows nowhere what an MLP adds alone: no sink can be found in it")
    stream = "mlp_sum" if v.family.placement == "post" else "post"
    found: dict[int, list[tuple[float, Tensor]]] = {layer.index: [] for layer in v.layers}
    lasts: dict[int, nn.Module] = {}
    wrote: dict[int, Tensor] = {}
    kept: list[Tensor | None] = [None]

    def see(point: str, x: Float[Tensor, "batch token dim"]) -> None:
        _, index, name = point.split(".")
        layer = int(index)
        if name == "mlp":
            wrote[layer] = x.float()
            return
        norms, written = x.float().norm(dim=-1), wrote.pop(layer)
        mask = kept[0] if kept[0] is not None else torch.ones_like(norms, dtype=torch.bool)
        for each, size, good in zip(written, norms, mask, strict=True):
            length = each.norm(dim=-1).where(good, 0.0)
            most = int(length.argmax())
            found[layer].append((float(length[most] / size[good].median()), each[most].double().cpu()))

    points = [f"blocks.{layer.index}.{name}" for layer in v.layers for name in ("mlp", stream)]
    with evaluating(model), hook_points(v, points, see), _last_maps(v, lasts):
        for batch in each_batch(batches):
            inputs = to_model(batch, model)
            kept[0] = kept_tokens(inputs, model)
            call(model, inputs)
    layer, times = max(((i, sum(t for t, _ in rows) / len(rows)) for i, rows in found.items()), key=lambda e: e[1])
    if times < FACTOR:
        raise DataError(
            f"no sink to drop: the longest vector that an MLP writes (layer {layer}) has {times:.1f} times the median "
            f"token's norm, expected {FACTOR:g} or more"
        )
    direction = torch.stack([each for _, each in found[layer]]).mean(0)
    return Sink(layer, direction / direction.norm(), times, lasts[layer])


@contextmanager
def _last_maps(v: ModelView, lasts: dict[int, nn.Module]) -> Iterator[None]:
    """The linear map of each block that ran last with the stream's width: the one that writes the MLP's output."""
    handles = []
    for layer in v.layers:
        for module in layer.block.modules():
            weight = getattr(module, "weight", None)
            if isinstance(weight, Tensor) and weight.ndim == 2 and v.width in weight.shape:

                def note(m: nn.Module, args: Any, output: Any, index: int = layer.index) -> None:
                    if isinstance(output, Tensor) and output.shape[-1] == v.width:
                        lasts[index] = m

                handles.append(module.register_forward_hook(note))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@torch.no_grad()
def drop_sink(
    model: nn.Module, batches: Iterable[Any], strength: float, before: list[tuple[Tensor, Tensor]]
) -> dict[str, Any]:
    """Take the sink's direction out of its MLP's last weights; `before` gets each parameter and a copy of it."""
    refuse_sharded(model)
    sink = find_sink(model, batches)
    weight = sink.last.weight
    if not isinstance(weight, nn.Parameter):
        raise WeightsError(f"layer {sink.layer}: the MLP's last weights are no plain parameter: `bake` or dequantise")
    transposed = not isinstance(sink.last, nn.Linear)  # Hugging Face's Conv1D keeps one column per output feature
    scale = _scale(view(model).layers[sink.layer].block, sink, weight)
    u = sink.direction.to(weight.device)
    read, write = u * scale, u / scale  # what the weights write is multiplied by LayerScale afterwards
    rows = (weight.mT if transposed else weight).double()
    update = strength * torch.outer(write, read @ rows)
    size = float(torch.linalg.matrix_norm(scale[:, None] * rows))
    change = float(torch.linalg.matrix_norm(scale[:, None] * update))
    before.append((weight, weight.detach().clone()))
    weight.sub_((update.mT if transposed else update).to(weight.dtype))
    bias = getattr(sink.last, "bias", None)
    if isinstance(bias, nn.Parameter):
        before.append((bias, bias.detach().clone()))
        bias.sub_((strength * write * (read @ bias.double())).to(bias.dtype))
    return {"layer": sink.layer, "head": None, "size": size, "change": change, "times_median": sink.times}


def _scale(block: nn.Module, sink: Sink, weight: Tensor) -> Float[Tensor, " dim"]:
    """A LayerScale between the MLP's last weights and the stream; ones without."""
    modules = list(block.modules())
    after = modules[modules.index(sink.last) + 1 :]
    found = next((m for m in after if "scale" in type(m).__name__.lower()), None)
    values = next((p for p in found.parameters()), None) if found is not None else None
    if values is None:
        return torch.ones(len(sink.direction), dtype=torch.float64, device=weight.device)
    if not bool((values != 0).all()):
        raise WeightsError(f"layer {sink.layer}: a LayerScale of 0 stands between the MLP and the stream")
    return values.detach().double()
