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
from unsmooth.models.forward import call, evaluating, to_model
from unsmooth.models.hooks import hook_points
from unsmooth.models.inputs import each_batch, kept_tokens
from unsmooth.models.storage import refuse_sharded

EXACT = 1e-3  # of the longest vector that the MLP writes: so near must it come to what the edit says
_REFUSED = (
    "layer {}: no change of one matrix drops this sink, because several experts, or a norm, stand between the MLP's "
    "weights and the stream, or because the model draws at random"
)
FACTOR = 8.0  # how many times the median token's norm what an MLP writes must have to make a sink


@dataclass(frozen=True)
class Sink:
    """Which MLP writes it: layer, direction, times the median norm of what tokens carry there, last linear map.

    `scale` is what each feature of that map is multiplied by on its way to the stream (LayerScale), read off both.
    """

    layer: int
    direction: Float[Tensor, " dim"]
    times: float
    last: nn.Module
    scale: Float[Tensor, " dim"]


def find_sink(model: nn.Module, batches: Iterable[Any]) -> Sink:
    """The MLP that writes the longest vector, by the median norm of the stream that it writes to.

    DataError where no MLP writes `FACTOR` times the median to any token: there is no sink to drop.
    """
    v = view(model)
    if not all(layer.spot("mlp") for layer in v.layers):
        raise WeightsError(f"family {v.family.name!r} shows nowhere what an MLP adds alone: no sink can be found in it")
    stream = "mlp_sum" if v.family.placement == "post" else "post"
    found: dict[int, list[tuple[float, Tensor]]] = {layer.index: [] for layer in v.layers}
    lasts: dict[int, tuple[nn.Module, Tensor]] = {}
    scales: dict[int, Tensor] = {}
    wrote: dict[int, Tensor] = {}
    kept: list[Tensor | None] = [None]

    def see(point: str, x: Float[Tensor, "batch token dim"]) -> None:
        _, index, name = point.split(".")
        layer = int(index)
        if name == "mlp":
            wrote[layer] = x
            return
        norms, written = x.float().norm(dim=-1), wrote.pop(layer)
        mask = kept[0] if kept[0] is not None else torch.ones_like(norms, dtype=torch.bool)
        for each, size, good in zip(written, norms, mask, strict=True):
            length = each.float().norm(dim=-1).where(good, 0.0)
            most = int(length.argmax())
            found[layer].append((float(length[most] / size[good].median()), each[most].double().cpu()))
        given = lasts[layer][1]
        given = given if v.batch_first else given.transpose(0, 1)
        if given.numel() == written.numel():  # not one of several experts
            scales[layer] = _ratio(given.reshape(written.shape)[mask], written[mask])

    points = [f"blocks.{layer.index}.{name}" for layer in v.layers for name in ("mlp", stream)]
    with evaluating(model), hook_points(v, points, see), _last_maps(v, lasts):
        for batch in each_batch(batches):
            inputs = to_model(batch, model)
            kept[0] = kept_tokens(inputs, model)
            call(model, inputs)
    means = {layer: sum(times for times, _ in rows) / len(rows) for layer, rows in found.items() if rows}
    if not means:
        raise DataError("no batch to find a sink in: expected at least one")
    layer = max(means, key=means.__getitem__)
    if means[layer] < FACTOR:
        raise DataError(
            f"no sink to drop: the longest vector that an MLP writes (layer {layer}) has {means[layer]:.1f} times the "
            f"median token's norm, expected {FACTOR:g} or more"
        )
    if layer not in scales:
        raise WeightsError(_REFUSED.format(layer))
    direction = torch.stack([each for _, each in found[layer]]).mean(0)
    return Sink(layer, direction / direction.norm(), means[layer], lasts[layer][0], scales[layer])


def _ratio(before: Float[Tensor, "token dim"], after: Float[Tensor, "token dim"]) -> Float[Tensor, " dim"]:
    """What each feature is multiplied by."""
    before, after = before.double(), after.double()
    size = before.square().sum(0)
    return torch.where(size > 0, (before * after).sum(0) / size, 1.0)


@contextmanager
def _last_maps(v: ModelView, lasts: dict[int, tuple[nn.Module, Tensor]]) -> Iterator[None]:
    """The linear map of each block that ran last with the stream's width, and what it gave: the MLP's output."""
    handles = []
    for layer in v.layers:
        for module in layer.block.modules():
            weight = getattr(module, "weight", None)
            if isinstance(weight, Tensor) and weight.ndim == 2 and v.width in weight.shape:

                def note(m: nn.Module, args: Any, output: Any, index: int = layer.index) -> None:
                    if isinstance(output, Tensor) and output.shape[-1] == v.width:
                        lasts[index] = m, output.clone()  # a block may add to it in place

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
    """Take the sink's direction out of its MLP's last weights; `before` gets each parameter and a copy of it.

    WeightsError where that does not do what it says, because no one matrix writes the sink.
    """
    refuse_sharded(model)
    given, v = list(each_batch(batches)), view(model)
    sink = find_sink(model, given)
    weight, block = sink.last.weight, v.layers[sink.layer].block
    if not isinstance(weight, nn.Parameter):
        raise WeightsError(f"layer {sink.layer}: the MLP's last weights are no plain parameter: `bake` or dequantise")
    if not bool((sink.scale != 0).all()):
        raise WeightsError(f"layer {sink.layer}: a LayerScale of 0 stands between the MLP and the stream")
    first = next(i for i, layer in enumerate(v.layers) if layer.block is block)  # what it is given stays the same
    wrote = _written(v, first, given[0])
    transposed = not isinstance(sink.last, nn.Linear)  # Hugging Face's Conv1D keeps one column per output feature
    u, scale = sink.direction.to(weight.device), sink.scale.to(weight.device)
    read, write = u * scale, u / scale  # what the weights write is multiplied by the scale afterwards
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
    away = _written(v, first, given[0]) - (wrote - strength * (wrote @ u)[:, None] * u)
    if not away.norm(dim=-1).max() <= max(EXACT, 4 * torch.finfo(weight.dtype).eps) * wrote.norm(dim=-1).max():
        raise WeightsError(_REFUSED.format(sink.layer))
    return {"layer": sink.layer, "head": None, "size": size, "change": change, "times_median": sink.times}


def _written(v: ModelView, layer: int, batch: Any) -> Float[Tensor, "token dim"]:
    """What a layer's MLP adds to every token of a batch that is no padding."""
    inputs = to_model(batch, v.model)
    kept = kept_tokens(inputs, v.model)
    found: list[Tensor] = []

    def see(point: str, x: Float[Tensor, "batch token dim"]) -> None:
        found.append((x.flatten(0, 1) if kept is None else x[kept]).double())

    with evaluating(v.model), hook_points(v, [f"blocks.{layer}.mlp"], see):
        call(v.model, inputs)
    return found[0]
