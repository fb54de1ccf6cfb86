"""What a row that is being found says of its branches, proven: where the norms stand, and what depends on what."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from unsmooth.models.forward import call, evaluating, to_model
from unsmooth.models.hooks import hook_points, listen, replace_points
from unsmooth.models.reconstruction import given_spot, result_spot
from unsmooth.models.taps import Spot, Tap, find
from unsmooth.models.trace import same
from unsmooth.models.view import LayerView, ModelView

Change = Callable[[Tensor], Tensor]


@contextmanager
def told_apart(model: nn.Module) -> Iterator[None]:
    """Vectors of weights are other ones inside: in a fresh model norms and LayerScales are all 1 or 0, and nobody
    could tell which of them acts where. Afterwards they are as before, bit for bit."""
    vectors = [p for p in model.parameters() if p.dim() == 1 and type(p) is nn.Parameter and p.is_floating_point()]
    kept = [(p, p.detach().clone()) for p in vectors if not (p.is_meta or p.is_inference())]
    draw = torch.Generator().manual_seed(0)
    try:
        for p, x in kept:
            change = torch.rand(x.shape, generator=draw).to(x)
            p.data.copy_(x * (0.9 + 0.2 * change) + 0.1 * change.flip(0))
        yield
    finally:
        for p, x in kept:
            p.data.copy_(x)


def misplaced(v: ModelView, batch: Any) -> set[str]:
    """Of `norm1`, `norm2` and `attention`, those that some layer has elsewhere than the row says."""
    spots: dict[str, tuple[int | None, Spot]] = {}
    for layer in v.layers:
        spots |= {f"{layer.index}.{name}": (layer.index, spot) for name, spot in _spots(layer)}
    seen: dict[str, Tensor] = {}

    def receive(name: str, x: Tensor | None) -> None:
        seen[name] = torch.empty(0) if x is None else x.clone()

    with evaluating(v.model), listen(v, spots, receive):
        call(v.model, to_model(batch, v.model))
    wrong: set[str] = set()
    for layer in v.layers:
        start = f"{layer.index}."
        at = {name.removeprefix(start): x for name, x in seen.items() if name.startswith(start)}
        wrong |= {name for name, a, b in _equal(layer, at) if not same(a, b)}
    return wrong


def _spots(layer: LayerView) -> Iterator[tuple[str, Spot]]:
    for point in ("pre", "mid", "attn"):
        if (spot := layer.spot(point)) is not None:
            yield point, spot
    for point in ("norm1", "norm2"):
        if (spot := layer.spot(point)) is not None:
            yield f"{point}.out", spot
            yield f"{point}.in", Spot(spot.module, Tap("", "in", spot.tap.call, spot.tap.of))
    if layer.family.attention is not None:
        yield "given", given_spot(layer)
        yield "result", result_spot(layer)
        if (norm := find(layer.block, layer.attention_row.out_norm)) is not None:
            yield "out_norm.in", Spot(norm, Tap("", "in"))
            yield "out_norm.out", Spot(norm, Tap("", "out"))


def _equal(layer: LayerView, at: dict[str, Tensor]) -> Iterator[tuple[str, Tensor, Tensor]]:
    """What must be the same tensor, by what is wrong if it is not."""
    if "norm1.in" in at:
        yield "norm1", at["norm1.in"], at["pre"]
    if "norm2.in" in at:
        yield "norm2", at["norm2.in"], at.get("mid", at["pre"])
    if layer.family.attention is None:
        return
    yield "attention", at["given"], at.get("norm1.out", at["pre"])
    result = at["result"]
    if "out_norm.in" in at:
        yield "attention", at["out_norm.in"], result
        result = at["out_norm.out"]
    scale = find(layer.block, layer.attention_row.scale)
    yield "attention", result if scale is None else result * scale, at["attn"]


class Interventions:
    """The last block's branches while something before them is changed."""

    def __init__(self, v: ModelView, batch: Any) -> None:
        self.v, self.batch = v, batch
        self.start = f"blocks.{len(v.layers) - 1}."
        self.plain = self._run(None, None)

    def _run(self, point: str | None, change: Change | None) -> dict[str, Tensor]:
        seen: dict[str, Tensor] = {}
        names = [f"{self.start}{branch}" for branch in ("attn", "mlp")]

        def keep(name: str, x: Tensor) -> None:
            seen[name.rpartition(".")[2]] = x.clone()

        changed = replace_points(self.v, [point], lambda _, x: change(x)) if point and change else nullcontext()
        with evaluating(self.v.model), changed, hook_points(self.v, names, keep):
            call(self.v.model, to_model(self.batch, self.v.model))
        return seen

    def moved(self, point: str, change: Change, token: slice = slice(None)) -> set[str]:
        """Which of `attn` and `mlp` give something else at these tokens when a point is changed."""
        now = self._run(f"{self.start}{point}", change)
        return {branch for branch, x in self.plain.items() if not same(now[branch][:, token], x[:, token])}

    def mixing(self) -> set[str]:
        """The branches whose last token depends on others."""

        def others(x: Tensor) -> Tensor:
            return torch.cat([_other(x[:, :-1]), x[:, -1:]], 1)

        return self.moved("pre", others, slice(-1, None))

    def is_parallel(self) -> bool:
        """Whether only attention mixes tokens, the MLP does not see what it adds, and norms lead where the row says."""
        if self.mixing() != {"attn"} or "mlp" in self.moved("attn", _other):
            return False
        shared = self.v.family.placement == "parallel-shared"
        leads = {"norm1": {"attn", "mlp"} if shared else {"attn"}, "norm2": {"mlp"}}
        points = [point for point in leads if f"{self.start}{point}" in self.v.points]
        return all(self.moved(point, _other) == leads[point] for point in points)


def _other(x: Tensor) -> Tensor:
    return x.roll(1, -1)
