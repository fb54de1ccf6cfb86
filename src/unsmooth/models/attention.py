"""The attention matrices as the model computes them, and the proof that weights and matrices belong together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unsmooth.errors import WeightsError
from unsmooth.metrics.tolerance import tolerance
from unsmooth.models.family import Maps
from unsmooth.models.forward import call, evaluating, to_model
from unsmooth.models.hooks import Receive, listen
from unsmooth.models.quantised import MOST_ROUNDING
from unsmooth.models.sdpa import SdpaMatrices, ShowSdpa
from unsmooth.models.storage import is_sharded
from unsmooth.models.taps import Spot, Tap, find, find_spot
from unsmooth.models.view import LayerView, ModelView
from unsmooth.models.weights import HeadWeights, slot_of

#: Attention implementations of Hugging Face that return the matrix they multiply by. One that is not the eager one
#: (a fix of the matrix) stays in place while matrices are shown: without it this would be another model.
EXPLICIT = {"eager"}
PART_ELEMENTS = 2**23  # of a matrix that is formed in parts, in float64


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
    chosen = _chosen(v, layers)
    in_parts = in_parts and all(calls_sdpa(v, v.layers[i]) for i in chosen)

    def receive(name: str, a: Any) -> None:
        layer = v.layers[int(name.partition(".")[0])]
        fn(layer.index, _as_maps(v, layer, a))

    with nullcontext() if in_parts else unfused(v, chosen), _listen_to_maps(v, chosen, {}, receive, in_parts):
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


def check_attention(v: ModelView, batch: Any, *, in_parts: bool = False) -> float:
    """Check Σ_h A_h (X W_V^h + b_v^h) W_proj^h + b_proj against every attention module's output.

    `batch` is what the model is called with (a tensor, or a mapping of keyword arguments). The model
    runs once, in eval mode and without gradients. Returns the largest error, relative to the size of
    the summed terms; WeightsError if one exceeds what the dtype explains. `in_parts` as in `capture_attention`.
    """
    seen: dict[str, Tensor] = {}
    worst = 0.0
    spots: dict[str, tuple[int | None, Spot]] = {}
    for layer in v.layers:
        spots[f"{layer.index}.in"] = (layer.index, Spot(layer.attention, Tap("", "in")))
        spots[f"{layer.index}.out"] = (layer.index, _result_spot(layer))

    def receive(name: str, x: Any) -> None:
        nonlocal worst
        index, _, what = name.partition(".")
        layer = v.layers[int(index)]
        seen[what] = _as_maps(v, layer, x) if what == "maps" else _features(v, layer, x)
        if len(seen) == 3:
            worst = max(worst, _compare(layer, seen["in"], seen["maps"], seen["out"]))
            seen.clear()

    chosen = range(len(v.layers))
    in_parts = in_parts and all(calls_sdpa(v, layer) for layer in v.layers)
    shown = nullcontext() if in_parts else unfused(v, chosen)
    with evaluating(v.model), shown, _listen_to_maps(v, chosen, spots, receive, in_parts):
        call(v.model, to_model(batch, v.model))
    return worst


@contextmanager
def _listen_to_maps(
    v: ModelView,
    layers: Iterable[int],
    others: Mapping[str, tuple[int | None, Spot]],
    receive: Receive,
    in_parts: bool = False,
) -> Iterator[None]:
    """`listen` to the spots given and, as `LAYER.maps`, to the matrices of these layers, however they are shown."""
    spots = dict(others)
    sdpa = ShowSdpa(lambda layer, a: receive(f"{layer}.maps", a), in_parts)
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
        else:
            receive(name, x)

    fused = any(name.endswith(".begin") for name in spots)
    with sdpa if fused else nullcontext(), listen(v, spots, heard):
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


def _result_spot(layer: LayerView) -> Spot:
    return find_spot(layer.block, layer.attention_row.result) or Spot(layer.attention, Tap("", "out"))


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


def _features(v: ModelView, layer: LayerView, x: Tensor | None) -> Tensor:
    if x is None or x.dim() != 3:
        raise WeightsError(
            f"{layer.name}: expected attention features of shape (batch, token, dim), "
            f"got {'no tensor' if x is None else tuple(x.shape)}"
        )
    return x if v.batch_first else x.transpose(0, 1)


def attend(
    x: Float[Tensor, "batch key dim"],
    a: Float[Tensor, "batch head query key"],
    w: HeadWeights,
) -> Float[Tensor, "batch query dim"]:
    """Σ_h A_h (X W_V^h + b_v^h) W_proj^h + b_proj."""
    value = torch.einsum("bnd,hdk->bhnk", x, w.w_v)
    value = value if w.b_v is None else value + w.b_v[:, None, :]
    y = torch.einsum("bhmk,hkd->bmd", a @ value, w.w_proj)
    return y if w.b_proj is None else y + w.b_proj


def _compare(layer: LayerView, x: Tensor, a: Tensor | SdpaMatrices, y: Tensor) -> float:
    """The relative error of the reconstruction, in float64; NaN rows (a query that may see nothing) must agree."""
    if a.shape[-1] != x.shape[1] or a.shape[-2] != y.shape[1]:
        raise WeightsError(
            f"{layer.name}: attention of shape {tuple(a.shape)} does not fit its input of {x.shape[1]} tokens "
            "(a cache, or extra keys): expected self-attention over one sequence"
        )
    weights = layer.weights()
    expected, terms = _attended(x, a, weights), _attended(x, a, weights, Tensor.abs)
    undefined = y.isnan()
    if not torch.equal(undefined, expected.isnan()):
        raise WeightsError(f"{layer.name}: the attention's output and its reconstruction are NaN in different places")
    difference = (expected - y.double()).abs().masked_fill(undefined, 0.0)
    scale = terms.masked_fill(undefined, 1.0).clamp_min(torch.finfo(torch.float64).tiny)
    error = float((difference / scale).amax())
    allowed = tolerance(y.dtype, 1)
    if weights.rounding > allowed:  # the layers round what they are given: compared as a whole, not number by number
        error, allowed = float(difference.norm() / expected.masked_fill(undefined, 0.0).norm()), MOST_ROUNDING
    if error > allowed:
        why = "Its row does not describe this module: check value, proj, heads and maps, and merge adapters (LoRA)"
        if (fix := getattr(layer.attention, "fix", None)) is not None:
            why = f"Its fix {type(fix).__name__} does more than mix values, which the theory does not describe: measure"
        raise WeightsError(
            f"{layer.name} of {layer.family.name}: Σ A_h (X W_V^h + b_v) W_proj^h + b_proj misses the attention's "
            f"output by {error:.2e} of the summed terms, more than {allowed:.2e} for {y.dtype}. {why}"
        )
    return error


def _attended(
    x: Tensor, a: Tensor | SdpaMatrices, w: HeadWeights, of: Callable[[Tensor], Tensor] = lambda t: t
) -> Float[Tensor, "batch query dim"]:
    """`attend` in float64, `of` every factor; matrices that are formed in parts a few rows at a time."""

    def weights(heads: slice, b_proj: Tensor | None) -> HeadWeights:
        b_v = None if w.b_v is None else of(w.b_v[heads].double())
        last = None if b_proj is None else of(b_proj.double())
        return HeadWeights(of(w.w_v[heads].double()), of(w.w_proj[heads].double()), b_v, last)

    if isinstance(a, Tensor):
        return attend(of(x.double()), of(a.double()), weights(slice(None), w.b_proj))
    total = torch.zeros(x.shape, dtype=torch.float64, device=x.device)
    rows = max(1, PART_ELEMENTS // (a.shape[0] * a.shape[-1]))
    for head in range(a.shape[1]):
        one = slice(head, head + 1)
        few = weights(one, None)
        for start in range(0, a.shape[-2], rows):
            part = slice(start, start + rows)
            total[:, part] += attend(of(x.double()), of(a(one, part).double()), few)
    return total if w.b_proj is None else total + of(w.b_proj.double())
