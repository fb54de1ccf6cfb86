"""The attention of a row that is being found: every candidate is tried until weights and matrices reproduce it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn

from unsmooth.errors import UnsmoothError
from unsmooth.models.attention import capture_attention
from unsmooth.models.family import AttentionRow, Family, Maps, Slot, sdpa_maps
from unsmooth.models.forward import call, evaluating, to_model
from unsmooth.models.reconstruction import attend, check_attention
from unsmooth.models.taps import Paths, Taps, find
from unsmooth.models.trace import Call, same
from unsmooth.models.view import LayerView, view_as
from unsmooth.models.weights import Norm, norm_kind, norm_parameters

_EPSILONS = (1e-5, 1e-6, 1e-8, 1e-12, 0.0)
# Where the values may stand in a linear map's rows.
_PARTS = (
    Slot("", 2, 3), Slot(""), Slot("", 1, 2), Slot("", -1), Slot("", -1, groups="kv_heads"), Slot("", 1, 3),
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Branch:
    """What is known of a block's attention: its calls, the features it works on, what it adds, and its norms."""

    module: nn.Module
    calls: list[Call]
    given: Tensor
    added: Tensor
    norm: Call | None = None
    post_norm: Call | None = None


def find_attention(model: nn.Module, row: Family, branch: Branch, batch: Any) -> Family:
    """The row with its attention; without, where no candidate reproduces what the attention adds."""
    for core, matrix, given, gave in _candidates(branch):
        tried = replace(row, attention=core)
        inside = find(branch.module, core.module)
        if isinstance(getattr(inside, "batch_first", None), bool):
            tried = replace(tried, batch_first=f"{core.module}.batch_first")
        try:
            if matrix is not None and not _gives(LayerView(0, branch.module, tried), given, matrix, gave):
                continue
            check_attention(view_as(model, model, tried), batch)
        except UnsmoothError:
            continue
        return replace(tried, causal=_is_causal(model, tried, batch))
    return row


def _gives(layer: LayerView, given: Tensor, matrix: Tensor, gave: Tensor) -> bool:
    """Whether weights, read as this row says, and the matrix give what was given: no forward pass is needed."""
    w = layer.weights()
    fits = w.w_v.shape[1] == given.shape[-1] and w.w_v.shape[-1] == w.w_proj.shape[1] and len(w.w_v) == matrix.shape[1]
    return fits and same(attend(given, matrix, w), gave)


def _candidates(b: Branch) -> Iterator[tuple[AttentionRow, Tensor | None, Tensor, Tensor]]:
    """Rows for the attention, the likely first, with a matrix, the features and the result they should give."""
    inputs = sorted((c for c in b.calls if c.of == 1 and same(c.given, b.given)), key=lambda c: c.path.count("."))
    outer: list[tuple[Call, Taps]] = [(c, ()) for c in inputs if not _is_map(c.module) and not norm_kind(c.module)]
    if b.norm is not None:  # also modules that normalise their own input
        outer += [(c, b.norm.tap("out")) for c in b.calls if c.of == 1 and b.norm.path.startswith(f"{c.path}.")]
    for last in reversed(b.calls):
        result = last.gave[0]
        is_mha = isinstance(last.module, nn.MultiheadAttention)
        around = _around(b, last) if is_mha or _is_map(last.module) else None
        if around is None or result is None or last.of != 1:
            continue
        if is_mha:
            yield replace(_of_torch(last), **around), None, b.given, result
        for whole, own in outer if not is_mha else ():
            for value, (maps, matrix) in itertools.product(
                filter(lambda c: _is_map(c.module), inputs), _matrices(b, whole)
            ):
                for core in _heads(b, whole, value, last, matrix):
                    yield replace(core, maps=maps, given=own, **around), matrix, b.given, result


def _of_torch(mha: Call) -> AttentionRow:
    return AttentionRow(
        mha.path,
        Slot(mha.path, 2, 3, weight="in_proj_weight", bias="in_proj_bias"),
        Slot(f"{mha.path}.out_proj"),
        f"{mha.path}.num_heads",
        maps=Maps(replace(mha.tap("out"), item=1), call_with={"need_weights": True, "average_attn_weights": False}),
        nonlinear=(f"{mha.path}.bias_v",),
    )


def _heads(b: Branch, whole: Call, value: Call, proj: Call, matrix: Tensor) -> Iterator[AttentionRow]:
    """With the numbers of heads that the modules around the maps name."""
    numbers = _numbers(b.module, proj.path) | _numbers(b.module, value.path) | _numbers(b.module, whole.path)
    kv_numbers = {n: path for n, path in numbers.items() if matrix.shape[1] % n == 0 and n != matrix.shape[1]}
    if (heads := numbers.get(matrix.shape[1])) is None:
        return
    shared: list[Paths] = [(), *kv_numbers.values()]
    for part, kv in itertools.product(_PARTS, shared):
        yield AttentionRow(
            whole.path,
            replace(part, path=value.path, transposed=not isinstance(value.module, nn.Linear)),
            Slot(proj.path, transposed=not isinstance(proj.module, nn.Linear)),
            heads,
            kv,
            result=proj.tap("out"),
        )


def _numbers(block: nn.Module, path: str) -> dict[int, str]:
    """Numbers that the modules on the way to a module hold, or their configurations: of each, the path that names
    heads if one does."""
    found: dict[int, str] = {}
    names = path.split(".")
    for owner in (".".join(names[:i]) for i in range(len(names) + 1)):
        for holder in (owner, f"{owner}.config".lstrip(".")):
            held = find(block, holder) if holder else block
            for key, n in (vars(held) if hasattr(held, "__dict__") else {}).items():
                if type(n) is int and n > 0 and ("head" in key or n not in found):
                    found[n] = f"{holder}.{key}".lstrip(".")
    return found


def _around(b: Branch, last: Call) -> dict[str, Any] | None:
    """The normalisations around the attention and its scale; None where its result is not what is added."""
    if last.gave[0] is None or last.gave[0].shape != b.added.shape:
        return None
    norms = {"norm": b.norm, "post_norm": b.post_norm}
    found: dict[str, Any] = {}
    for name, c in norms.items():
        if c is not None:
            if (said := _as_norm(c)) is None:
                return None
            found |= {name: c.path, **said}
    if same(last.gave[0], b.added):
        return found
    for name, scale in scales(b.module, b.added.shape[-1]):
        if same(last.gave[0] * scale, b.added):
            return {**found, "scale": name}
    for c in b.calls:
        if norm_kind(c.module) and same(c.given, last.gave[0]) and same(c.gave[0], b.added):
            return None if (said := _as_norm(c)) is None else {**found, "out_norm": c.path, **said}
    return None


def scales(block: nn.Module, width: int) -> Iterator[tuple[str, Tensor | float]]:
    """What a block may multiply a branch by: parameters of one number a feature (LayerScale), numbers of its own."""
    for name, p in block.named_parameters():
        if p.shape == (width,):
            yield name, p.detach()
    for name, x in vars(block).items():
        if isinstance(x, float):
            yield name, x


def _as_norm(c: Call) -> dict[str, float] | None:
    """What a normalisation does not say of itself: its epsilon, and whether it multiplies by 1 + weight; None where
    what it gives is not that of a normalisation with its weight and bias."""
    kind, x, y = norm_kind(c.module), c.given, c.gave[0]
    says = find(c.module, ("eps", "variance_epsilon"))
    weight, bias = norm_parameters(c.module)
    for offset, eps in itertools.product((0.0, 1.0), _EPSILONS if says is None else (says,)):
        scale = weight + offset if isinstance(weight, Tensor) else None
        if kind is not None and x is not None and same(Norm(kind, scale, bias, float(eps))(x), y):
            return ({"norm_offset": offset} if offset else {}) | ({"norm_eps": eps} if says is None else {})
    return None


def _is_map(module: nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    return isinstance(weight, Tensor) and weight.dim() == 2 and not isinstance(module, nn.Embedding)


def _matrices(b: Branch, whole: Call) -> Iterator[tuple[Maps, Tensor]]:
    """Where the attention matrices can be seen: in the fused function, as an output, around a module inside."""
    if len(whole.matrices) == 1 and whole.matrices[0].dim() == 4:
        yield sdpa_maps(), whole.matrices[0]
    for c in b.calls:
        for side, item, x in [("in", 0, c.given), *(("out", i, x) for i, x in enumerate(c.gave))]:
            if _sums_to_one(x):
                yield Maps(c.tap(side, item)), x


def _sums_to_one(x: Tensor | None) -> TypeGuard[Tensor]:
    if x is None or x.dim() != 4 or x.shape[-1] != x.shape[-2] or not x.is_floating_point():
        return False
    return same(x.sum(-1), torch.ones_like(x[..., 0]))


@torch.no_grad()
def _is_causal(model: nn.Module, row: Family, batch: Any) -> bool:
    """Whether no token attends to a later one, in any layer."""
    later: list[float] = []

    def receive(layer: int, a: Tensor) -> None:
        later.append(float(a.triu(1).abs().amax()))

    v = view_as(model, model, row)
    with evaluating(model), capture_attention(v, receive):
        call(model, to_model(batch, model))
    return max(later) == 0
