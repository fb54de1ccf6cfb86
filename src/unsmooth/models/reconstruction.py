"""The proof that weights and matrices belong together: the attention's output, computed again from both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unsmooth.errors import WeightsError
from unsmooth.metrics.tolerance import tolerance
from unsmooth.models.attention import listen_to_maps
from unsmooth.models.forward import call, evaluating, to_model
from unsmooth.models.hooks import listen
from unsmooth.models.quantised import MOST_ROUNDING
from unsmooth.models.sdpa import SdpaMatrices
from unsmooth.models.taps import Spot, Tap, find, find_spot
from unsmooth.models.view import LayerView, ModelView
from unsmooth.models.weights import HeadWeights

PART_ELEMENTS = 2**23  # of a matrix that is formed in parts, in float64


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
        spots[f"{layer.index}.in"] = (layer.index, given_spot(layer))
        spots[f"{layer.index}.out"] = (layer.index, result_spot(layer))

    def receive(name: str, x: Any) -> None:
        nonlocal worst
        index, _, what = name.partition(".")
        layer = v.layers[int(index)]
        seen[what] = x if what == "maps" else _features(v, layer, x)
        if len(seen) == 3:
            worst = max(worst, _compare(layer, seen["in"], seen["maps"], seen["out"]))
            seen.clear()

    with evaluating(v.model), listen_to_maps(v, range(len(v.layers)), spots, receive, in_parts):
        call(v.model, to_model(batch, v.model))
    return worst


@torch.no_grad()
def check_norms(v: ModelView) -> None:
    """WeightsError unless the norms around attention give what is folded, on a probe: of a row that nobody tested."""
    for layer in v.layers:
        row, weights = layer.attention_row, layer.weights()
        for paths, norm in (
            (row.norm, weights.norm),
            (row.out_norm, weights.out_norm),
            (row.post_norm, weights.post_norm),
        ):
            module = find(layer.block, paths)
            if norm is None or norm.weight is None or isinstance(module, nn.LayerNorm):
                continue
            probe = torch.linspace(-3, 5, len(norm.weight), dtype=norm.weight.dtype, device=norm.weight.device)
            try:
                y = module.forward(probe[None, None])[0, 0]
            except (TypeError, RuntimeError):  # it takes more than features
                continue
            expected = norm(probe)
            missed = float((expected - y).abs().amax() / expected.abs().amax())
            if missed > 10 * tolerance(y.dtype, 1):
                raise WeightsError(
                    f"{layer.name} of {v.family.name}: {type(module).__name__} gives something else than the "
                    f"{norm.kind} norm that would be folded into W_V (off by {missed:.2g}): name norm_eps or "
                    "norm_offset in the row, or leave its attention out; then the model is measured, not explained"
                )


@torch.no_grad()
def check_around(v: ModelView, batch: Any) -> None:
    """WeightsError unless what stands around attention in the row leads from the stream to it and back: of a row that
    nobody tested. A norm or a scale that the row does not name would be left out of H without a word."""
    seen: dict[str, Tensor] = {}
    spots: dict[str, tuple[int | None, Spot]] = {}
    for layer in v.layers:
        ends = {"pre": layer.spot("pre"), "attn": layer.spot("attn")}
        ends |= {"given": given_spot(layer), "result": result_spot(layer)}
        spots |= {f"{layer.index}.{name}": (layer.index, spot) for name, spot in ends.items() if spot is not None}

    def receive(name: str, x: Tensor | None) -> None:
        index, _, what = name.partition(".")
        seen[what] = torch.empty(0) if x is None else x.clone()
        if len(seen) == len([spot for spot in spots if spot.startswith(f"{index}.")]):
            _compare_around(v.layers[int(index)], seen)
            seen.clear()

    with evaluating(v.model), listen(v, spots, receive):
        call(v.model, to_model(batch, v.model))


def _compare_around(layer: LayerView, seen: Mapping[str, Tensor]) -> None:
    w, row = layer.weights(), layer.family.attention
    assert row is not None
    inner = seen.get("pre"), seen["given"], w.norm, "what attention works on is not {}the block's input", "norm"
    outer = (
        seen["result"],
        seen.get("attn"),
        w.out_norm,
        "what is added is not {}what attention gives",
        "out_norm or scale",
    )
    for start, end, norm, fact, names in (inner, outer):
        if start is None or end is None or start.shape != end.shape:
            continue
        expected = start.double() if norm is None else norm(start.double())
        if end is seen.get("attn") and w.out_scale is not None:
            expected = expected * w.out_scale
        undefined = expected.isnan() | end.isnan()
        difference = (expected - end.double()).abs().masked_fill(undefined, 0.0)
        missed = float(difference.amax() / end.double().abs().masked_fill(undefined, 0.0).amax().clamp_min(1e-300))
        if missed > 10 * tolerance(end.dtype, 1):
            raise WeightsError(
                f"{layer.name} of {layer.family.name}: {fact.format('' if norm is None else 'the norm of ')} (off by "
                f"{missed:.2g}): name what stands between them in the row ({names} of AttentionRow), or leave its "
                "attention out; then the model is measured, not explained"
            )


def given_spot(layer: LayerView) -> Spot:
    """Where the features that W_V works on can be seen."""
    return find_spot(layer.block, layer.attention_row.given) or Spot(layer.attention, Tap("", "in"))


def result_spot(layer: LayerView) -> Spot:
    """Where the attention's result can be seen, before what the block does to it."""
    return find_spot(layer.block, layer.attention_row.result) or Spot(layer.attention, Tap("", "out"))


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
    if isinstance(a, Tensor) and not layer.sink:
        _check_rows_sum(layer, a)
    return error


def _check_rows_sum(layer: LayerView, a: Float[Tensor, "batch head query key"]) -> None:
    """WeightsError unless A·1 = 1, but for queries that may see nothing: the sum above holds with sinks, too."""
    sums = a.double().nan_to_num().sum(-1)
    away = float((sums - 1).abs().masked_fill(sums == 0, 0.0).amax())
    # softmax is often in float32, whatever the model's dtype
    if away > max(tolerance(dtype, a.shape[-1]) for dtype in (a.dtype, torch.float32)):
        why = "if a part of the attention goes to no token, name what does that in the row (AttentionRow(sink=...)); "
        if (fix := getattr(layer.attention, "fix", None)) is not None:
            why = f"its fix {type(fix).__name__} makes them so, which the theory does not describe; "
        raise WeightsError(
            f"{layer.name} of {layer.family.name}: rows of its attention matrices sum to 1 ± {away:.2g}, expected 1: "
            f"{why}such a model can be measured, not explained"
        )


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
