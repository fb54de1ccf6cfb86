"""Hooks that hand over tensors while the model runs: layers are counted as they start, nothing is kept."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unsmooth.errors import PointError
from unsmooth.models.points import check_points, split_point
from unsmooth.models.taps import Side, Spot, tensor_out, tensors_in, with_tensor_in, with_tensor_out
from unsmooth.models.view import ModelView
from unsmooth.models.wrappers import eagerly

Key = tuple[int, Side]
Receive = Callable[[str, Tensor | None], Tensor | None]  # a tensor takes the place of the one that was handed over

_SKIPPED = "the forward pass went around that module: put the model in eval mode (layer drop), or leave this point out"
_REPEATED = (
    "the forward pass called that module again: turn off chunked feed-forward (chunk_size_feed_forward=0) "
    "and gradient checkpointing, or leave this point out"
)
_ONE_SAMPLE = ": a batch of one sample needs a first axis too (x[None], or DataLoader(dataset, batch_size=8))"


@contextmanager
def hook_points(
    v: ModelView, points: Iterable[str], fn: Callable[[str, Float[Tensor, "batch token dim"]], None]
) -> Iterator[None]:
    """Call `fn(point, x)` once per point and forward pass of the model, while inside the `with`.

    Points that are one tensor (blocks.0.post and blocks.1.pre) come as one object. PointError at the end
    of a forward pass in which a point did not fire exactly once.
    """
    names = check_points(v, points)
    batch_first = _BatchFirst(v.batch_first)

    def receive(name: str, x: Tensor | None) -> None:
        if x is None or x.dim() != 3:
            raise PointError(
                f"point {name!r}: expected features of shape (batch, token, dim), "
                f"got {'no tensor' if x is None else tuple(x.shape)}"
                + (_ONE_SAMPLE if x is not None and x.dim() == 2 else "")
            )
        fn(name, batch_first(x))

    with listen(v, {name: spot_of(v, name) for name in names}, receive):
        yield


@contextmanager
def replace_points(
    v: ModelView, points: Iterable[str], fn: Callable[[str, Float[Tensor, "batch token dim"]], Tensor | None]
) -> Iterator[None]:
    """As `hook_points`, but what `fn` returns takes the point's place in the forward pass (None: it stays).

    For what a sub-layer adds (`attn`, `mlp`) and for states of the stream.
    """

    def receive(name: str, x: Tensor | None) -> Tensor | None:
        if x is None or x.dim() != 3:
            raise PointError(f"point {name!r} gives no features of shape (batch, token, dim), so none can replace them")
        new = fn(name, x if v.batch_first else x.transpose(0, 1))
        return new if new is None or v.batch_first else new.transpose(0, 1)

    with listen(v, {name: spot_of(v, name) for name in check_points(v, points)}, receive):
        yield


def spot_of(v: ModelView, name: str) -> tuple[int | None, Spot]:
    """The layer (None outside the blocks) and place of a point that the model has."""
    index, point = split_point(name)
    spot = v.spot(point) if index is None else v.layers[index].spot(point)
    assert spot is not None, name
    return index, spot


@contextmanager
def listen(v: ModelView, spots: Mapping[str, tuple[int | None, Spot]], receive: Receive) -> Iterator[None]:
    """Call `receive(name, tensor)` at each named spot; checks every forward pass, removes all hooks."""
    passes = _Passes(v, spots, receive)
    with ExitStack() as stack:
        stack.enter_context(FastPath.off())
        stack.enter_context(eagerly())
        for handle in passes.register():
            stack.callback(handle.remove)
        yield


class FastPath:
    """torch's fused encoder layer skips its submodules and turns padded batches into nested tensors.

    Its switch is global: it is off while anybody listens, and as it was before once the last one has left.
    """

    lock = threading.Lock()
    listeners = 0
    before = True

    @classmethod
    @contextmanager
    def off(cls) -> Iterator[None]:
        """Without it, inside the `with`."""
        with cls.lock:
            if cls.listeners == 0:
                cls.before = torch.backends.mha.get_fastpath_enabled()
                torch.backends.mha.set_fastpath_enabled(False)
            cls.listeners += 1
        try:
            yield
        finally:
            with cls.lock:
                cls.listeners -= 1
                if cls.listeners == 0:
                    torch.backends.mha.set_fastpath_enabled(cls.before)


class _BatchFirst:
    """Features as (batch, token, dim); a tensor seen twice in a row gives the same object twice."""

    def __init__(self, already: bool) -> None:
        self.already = already
        self.last: tuple[Tensor, Tensor] | None = None

    def __call__(self, x: Tensor) -> Tensor:
        if self.already:
            return x
        if self.last is None or self.last[0] is not x:
            self.last = (x, x.transpose(0, 1))
        return self.last[1]


class _Passes:
    """One forward pass at a time: how many blocks have started, and what fired in each."""

    def __init__(self, v: ModelView, spots: Mapping[str, tuple[int | None, Spot]], receive: Receive) -> None:
        self.v, self.spots, self.receive = v, dict(spots), receive
        self.named: dict[tuple[int | None, Key], list[tuple[str, Spot]]] = {}
        for name, (index, spot) in spots.items():
            self.named.setdefault((index, spot.key), []).append((name, spot))
        self.in_model = self.running = False
        self.backbone_runs = 0
        self._reset()

    def _reset(self) -> None:
        self.started = 0
        self.in_block = False
        self.shape: torch.Size | None = None
        self.fired: Counter[tuple[int | None, Key]] = Counter()
        self.given: dict[int, Tensor | None] = {}  # to modules whose input a tap adds

    def _start(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.in_model and self.backbone_runs:
            raise PointError(
                f"{type(self.v.model).__name__} runs its {self.v.family.name} ({type(self.v.backbone).__name__}) more "
                "than once in one forward pass, so a point has no single value: give the inner model, and each input "
                "that it gets as a batch of its own"
            )
        self.running = True
        self._reset()
        spot, given = self.spots.get("embed", (None, None))[1], kwargs.get("inputs_embeds")
        if spot is None or not isinstance(spot.module, nn.Embedding) or not isinstance(given, Tensor):
            return None
        # What the embedding would give is given: of ids and pictures, joined outside.
        new = self._fire(spot.key, lambda item: given)
        return None if new is None else (args, {**kwargs, "inputs_embeds": new[1]})

    def register(self) -> Iterator[Any]:
        """Hooks in the order in which they must run: starts first, ends last."""
        ends = [layer.ends for layer in self.v.layers]
        yield self.v.model.register_forward_pre_hook(self._enter_model)
        yield self.v.backbone.register_forward_pre_hook(self._start, with_kwargs=True)
        for first in {id(first): first for first, _ in ends}.values():
            yield first.register_forward_pre_hook(self._enter_block, with_kwargs=True)
        for part in {id(spot.plus): spot.plus for _, spot in self.spots.values()}.values():
            if part is not None:
                yield part.register_forward_pre_hook(self._keep_input, with_kwargs=True)
        for spot in {spot.key: spot for _, spot in self.spots.values()}.values():
            if spot.tap.side == "in":
                yield spot.module.register_forward_pre_hook(self._on_input(spot.key), with_kwargs=True)
            else:
                yield spot.module.register_forward_hook(self._on_output(spot.key))
        for last in {id(last): last for _, last in ends}.values():
            yield last.register_forward_hook(self._leave_block)
        yield self.v.backbone.register_forward_hook(self._finish)
        yield self.v.model.register_forward_hook(self._leave_model)

    def _enter_model(self, *_: Any) -> None:
        self.in_model, self.backbone_runs = True, 0

    def _enter_block(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not self.running:
            raise PointError(
                f"a block of {self.v.family.name} ran outside a forward pass of its {type(self.v.backbone).__name__}: "
                "call the model itself, not a part of it (forward_features), and no backward pass with gradient "
                f"checkpointing while its points are watched{self._inner()}"
            )
        self.started += 1
        self.in_block = True
        x = next(tensors_in(args, kwargs), None)
        self.shape = None if x is None else x.shape[:-1]

    def _leave_block(self, *_: Any) -> None:
        self.in_block = False

    def _keep_input(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.given[id(module)] = next(tensors_in(args, kwargs), None)

    def _on_input(self, key: Key) -> Callable[..., Any]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            new = self._fire(key, lambda item: next(tensors_in(args, kwargs), None))
            return None if new is None else with_tensor_in(args, kwargs, new[1])

        return hook

    def _on_output(self, key: Key) -> Callable[..., Any]:
        def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
            new = self._fire(key, lambda item: tensor_out(output, item))
            return None if new is None else with_tensor_out(output, *new)

        return hook

    def _fire(self, key: Key, tensor: Callable[[int], Tensor | None]) -> tuple[int, Tensor] | None:
        """Hand the tensor over; what takes its place, and which item of the output that is."""
        if not self.running:  # a model around the backbone calls a part of it by itself
            return None
        replaced = None
        places: list[int | None] = [None, self.started - 1] if self.in_block else [None]
        for place in places:
            named = self.named.get((place, key), ())
            if named:
                self.fired[place, key] += 1
            for name, spot in named:
                if spot.tap.call == self.fired[place, key]:
                    given, plus = tensor(spot.tap.item), self.given.get(id(spot.plus))
                    new = self.receive(name, self._unflattened(spot.finished(given, plus)))
                    if new is not None and given is not None:
                        new = spot.unfinished(new, plus)
                        replaced = spot.tap.item, new.reshape(given.shape).to(given.dtype)
        return replaced

    def _unflattened(self, x: Tensor | None) -> Tensor | None:
        """With batch and token axes again, where a block works on a list of tokens (OPT's MLP)."""
        if x is None or x.dim() != 2 or not self.in_block or self.shape is None or len(x) != self.shape.numel():
            return x
        return x.unflatten(0, self.shape)

    def _finish(self, *_: Any) -> None:
        """The end of a forward pass: every point once, every layer once."""
        self.backbone_runs += 1
        self.running = False
        if self.started != len(self.v.layers):
            raise PointError(
                f"expected {len(self.v.layers)} passes through the blocks of {self.v.family.name}, the forward "
                f"pass made {self.started}: put the model in eval mode (layer drop), or view it again if its "
                "blocks changed"
            )
        for name, (index, spot) in self.spots.items():
            times = self.fired[index, spot.key]
            if times != spot.tap.of:
                raise PointError(
                    f"point {name!r} fired {times} times in one forward pass, expected {spot.tap.of} "
                    f"({'input' if spot.tap.side == 'in' else 'output'} of {type(spot.module).__name__}): "
                    f"{_SKIPPED + self._inner() if times < spot.tap.of else _REPEATED}"
                )

    def _inner(self) -> str:
        """The backbone by its path, where something around it may do a part of its work."""
        path = next(path for path, part in self.v.model.named_modules() if part is self.v.backbone)
        return f"; or give the inner model, at {path!r} (hf:NAME#{path})" if path else ""

    def _leave_model(self, *_: Any) -> None:
        self.in_model = False
        if self.backbone_runs == 0:
            raise PointError(
                f"a forward pass of {type(self.v.model).__name__} did not run its {self.v.family.name} "
                f"({type(self.v.backbone).__name__}): no point fired. Call it with the inputs of that part"
            )
