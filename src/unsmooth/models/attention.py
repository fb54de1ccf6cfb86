"""The attention matrices as the model computes them, whether its kernels form them or not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unsmooth.errors import WeightsError
from unsmooth.models.family import Maps
from unsmooth.models.hooks import Receive, listen
from unsmooth.models.sdpa import ShowSdpa
from unsmooth.models.storage import is_sharded
from unsmooth.models.taps import Spot, Tap, find, find_spot
from unsmooth.models.view import LayerView, ModelView
from unsmooth.models.weights import slot_of

#: Attention implementations of Hugging Face that return the matrix they multiply by. One that is not the eager one
#: (a fix of the matrix) stays in place while matrices are shown: without it this would be another model.
EXPLICIT = {"eager"}


@contextmanager
def capture_attention(
    v: ModelView,
    fn: Callable[[int, Any], None],
    layers: Iterable[int] | None = None,
    *,
    in_parts: bool = False,
) -> Iterator[None]:
    """Call `fn(layer, A)` once per pass, with the matrices that the forward pass itself multiplies by.

    Fused kernels never form A, so they are switched off meanwhile and back on afterwards. Rows of A sum to
    one in eval mode; in training mode some families show it after dropout.

    With `in_parts`, layers that call PyTorch's fused function stay as they are, and `fn` gets `SdpaMatrices`, which
    forms the heads and queries that it is asked for; other models hand over whole matrices all the same.
    """

    def receive(name: str, a: Any) -> None:
        fn(int(name.partition(".")[0]), a)

    with listen_to_maps(v, _chosen(v, layers), {}, receive, in_parts):
        yield


def calls_sdpa(v: ModelView, layer: LayerView) -> bool:
    """Whether a layer, as the model is now, calls `F.scaled_dot_product_attention` with all of its heads."""
    found = slot_of(layer.block, layer.attention_row.proj)
    if found is None or is_sharded(getattr(found[1], found[2])):
        return False
    maps = _maps_row(layer)
    if maps.fused:
        return True
    settings = [(layer.block, item) for item in maps.settings.items()]
    settings += [(v.backbone, item) for item in maps.backbone_settings.items()]
    now = [(find(root, path), value) for root, (path, value) in settings]
    return bool(now) and all((value, found) in {("eager", "sdpa"), (False, True)} for found, value in now)


@contextmanager
def listen_to_maps(
    v: ModelView,
    layers: Sequence[int],
    others: Mapping[str, tuple[int | None, Spot]],
    receive: Receive,
    in_parts: bool,
) -> Iterator[None]:
    """`listen` to the spots given and, as `LAYER.maps`, to the matrices of these layers, however they are shown."""
    in_parts = in_parts and all(calls_sdpa(v, v.layers[i]) for i in layers)
    spots = dict(others)

    def show(layer: int, a: Any) -> None:
        receive(f"{layer}.maps", _as_maps(v, v.layers[layer], a))

    sdpa = ShowSdpa(show, in_parts)
    for layer in (v.layers[i] for i in layers):
        if in_parts or _maps_row(layer).fused:
            spots[f"{layer.index}.begin"] = (layer.index, Spot(layer.attention, Tap("", "in")))
            spots[f"{layer.index}.end"] = (layer.index, Spot(layer.attention, Tap("", "out")))
        else:
            spots[f"{layer.index}.maps"] = (layer.index, _maps_spot(layer))

    def heard(name: str, x: Tensor | None) -> None:
        index, _, what = name.partition(".")
        if what == "begin":
            sdpa.begin(int(index))
        elif what == "end":
            sdpa.end(f"{v.layers[int(index)].name} of {v.family.name}")
        elif what == "maps":
            show(int(index), x)
        else:
            receive(name, x)

    fused = any(name.endswith(".begin") for name in spots)
    shown = nullcontext() if in_parts else unfused(v, layers)
    with shown, sdpa if fused else nullcontext(), listen(v, spots, heard):
        yield


@contextmanager
def unfused(v: ModelView, layers: Iterable[int]) -> Iterator[None]:
    """Have these layers form their attention matrices; everything set is restored."""
    with ExitStack() as stack:
        blocks = {id(v.layers[i].block): v.layers[i] for i in layers}.values()
        for layer in blocks:
            maps = _maps_row(layer)
            for root, settings in ((v.backbone, maps.backbone_settings), (layer.block, maps.settings)):
                for path, value in settings.items():
                    _set(stack, root, path, value)
            if maps.call_with:
                stack.callback(_calling_with(layer.attention, maps.call_with).remove)
            stack.callback(layer.attention.register_forward_pre_hook(_finite_mask, with_kwargs=True).remove)
        yield


def _finite_mask(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """A float64 mask that stays finite in float32, where Hugging Face's eager softmax works.

    A query that may see nothing (padding on the left) has a row of −∞ there otherwise, NaN after the softmax, and NaN
    in every token of the next layer; fused kernels give such a query 0.
    """
    mask = kwargs.get("attention_mask")
    if isinstance(mask, Tensor) and mask.dtype == torch.float64:
        kwargs = {**kwargs, "attention_mask": mask.clamp_min(torch.finfo(torch.float32).min)}
    return args, kwargs


def _set(stack: ExitStack, root: object, path: str, value: object) -> None:
    owner_path, _, name = path.rpartition(".")
    owner = find(root, owner_path)
    if owner is None or not hasattr(owner, name) or (value == "eager" and getattr(owner, name) in EXPLICIT):
        return
    if getattr(owner, name) != value:
        stack.callback(setattr, owner, name, getattr(owner, name))
        setattr(owner, name, value)


def _calling_with(module: nn.Module, extra: Mapping[str, object]) -> Any:
    def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return args, {**kwargs, **extra}

    return module.register_forward_pre_hook(hook, with_kwargs=True)


def _chosen(v: ModelView, layers: Iterable[int] | None) -> list[int]:
    chosen = list(range(len(v.layers))) if layers is None else list(dict.fromkeys(layers))
    for i in chosen:
        if not 0 <= i < len(v.layers):
            raise WeightsError(f"expected layers 0 to {len(v.layers) - 1} of {v.family.name}, got {i}")
    return chosen


def _maps_row(layer: LayerView) -> Maps:
    maps = layer.attention_row.maps
    if maps is None:
        raise WeightsError(
            f"family {layer.family.name!r} gives no attention matrices: its row has no Maps. Its models can be "
            "measured and controlled, not explained"
        )
    return maps


def _maps_spot(layer: LayerView) -> Spot:
    spot = find_spot(layer.block, _maps_row(layer).tap)
    if spot is None:
        raise WeightsError(f"{layer.name} of family {layer.family.name!r} has nowhere to take its matrices from")
    return spot


def _as_maps(v: ModelView, layer: LayerView, a: Any) -> Any:
    if isinstance(a, Tensor) and a.dim() == 4 and a.shape[1] < layer.heads:
        a = _all_heads(layer, a)
    if a is None or len(a.shape) != 4 or a.shape[1] != layer.heads:
        raise WeightsError(
            f"{layer.name} of {v.family.name}: expected attention matrices of shape (batch, {layer.heads} heads, "
            f"query, key), got {'none' if a is None else tuple(a.shape)}: its attention module does not show "
            "the matrix it multiplies by (a Hugging Face model may, when loaded with attn_implementation='eager': "
            "--model-option attn_implementation=eager)"
        )
    return a


def _all_heads(layer: LayerView, a: Float[Tensor, "batch part query key"]) -> Float[Tensor, "batch head query key"]:
    """The matrices of every head where tensor parallelism leaves each process some of them: those of its columns of
    W_proj. Every process must come here."""
    found = slot_of(layer.block, layer.attention_row.proj)
    weight = getattr(found[1], found[2]) if found is not None else None
    if weight is None or not is_sharded(weight):
        return a
    from torch.distributed.tensor import DTensor, Replicate, Shard

    placements = [Shard(1) if placement.is_shard() else Replicate() for placement in weight.placements]
    return DTensor.from_local(a, weight.device_mesh, placements).full_tensor()
