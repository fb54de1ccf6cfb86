"""The proof that a row's points belong together: what each sub-layer adds leads from one state to the next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from unsmooth.errors import PointError
from unsmooth.metrics.tolerance import tolerance
from unsmooth.models.family import Placement
from unsmooth.models.forward import call, evaluating, to_model
from unsmooth.models.hooks import hook_points
from unsmooth.models.registry import is_own
from unsmooth.models.view import ModelView

# Sums of a block: the terms, and the state that they must give.
_SUMS: dict[Placement, tuple[tuple[tuple[str, ...], str], ...]] = {
    "pre": ((("pre", "attn"), "mid"), (("mid", "mlp"), "post")),
    "post": ((("pre", "attn"), "attn_sum"), (("mid", "mlp"), "mlp_sum")),
    "parallel": ((("pre", "attn", "mlp"), "post"),),
    "parallel-shared": ((("pre", "attn", "mlp"), "post"),),
}


def check_sums(v: ModelView, batch: Any) -> float:
    """Check that pre + attn = mid, mid + mlp = post (or what the placement says), and that post enters the next block.

    The model runs once, in eval mode and without gradients. Returns the largest error, relative to the size of the
    terms; PointError if one exceeds what the dtype explains. Sums of which the row leaves out a point are not checked.
    """
    have, worst = set(v.points), 0.0
    sums = [(terms, total) for terms, total in _sums_of(v) if have.issuperset((*terms, total))]
    seen: dict[str, Tensor] = {}

    def receive(point: str, x: Tensor) -> None:
        nonlocal worst
        seen[point] = x.clone()  # a block may add to it in place
        while sums and seen.keys() >= {*sums[0][0], sums[0][1]}:
            terms, total = sums.pop(0)
            worst = max(worst, _compare(v, terms, total, seen))
            for over in {*terms, total} - {name for terms, total in sums for name in (*terms, total)}:
                del seen[over]

    points = {name for terms, total in sums for name in (*terms, total)}
    with evaluating(v.model), hook_points(v, [point for point in v.points if point in points], receive):
        call(v.model, to_model(batch, v.model))
    return worst


def is_proven(v: ModelView) -> bool:
    """Whether a row that comes with unsmooth is used on the very classes that it was tested on.

    Not so where somebody registered the row, or where the model or its blocks are subclasses of their own making.
    """
    if is_own(v.family):
        return False
    packages = {str(name).partition(".")[0] for name in v.family.classes}
    modules = (v.backbone, *(layer.block for layer in v.layers))
    return all(type(module).__module__.partition(".")[0] in packages for module in modules)


def _sums_of(v: ModelView) -> Iterator[tuple[list[str], str]]:
    for layer in v.layers:
        for terms, total in _SUMS[v.family.placement]:
            yield [f"blocks.{layer.index}.{term}" for term in terms], f"blocks.{layer.index}.{total}"
        if layer.index + 1 < len(v.layers):
            yield [f"blocks.{layer.index}.post"], f"blocks.{layer.index + 1}.pre"


def _compare(v: ModelView, terms: list[str], total: str, seen: dict[str, Tensor]) -> float:
    every = [seen[term] for term in terms]
    said = f"{' + '.join(terms)} = {total}"
    state = seen[total].double()
    if any(x.shape != seen[total].shape for x in every):
        raise PointError(
            f"{v.family.name}: expected {said}, got shapes {', '.join(str(tuple(x.shape)) for x in every)} and "
            f"{tuple(seen[total].shape)}: correct the row (register_family replaces one of the same name)"
        )
    added = torch.stack([x.double() for x in every])
    size = added.abs().sum(0).amax().clamp_min(torch.finfo(torch.float64).tiny)
    error = float((added.sum(0) - state).abs().amax() / size)
    allowed = max(tolerance(x.dtype, 1) for x in (*every, seen[total]))
    if error > allowed:
        raise PointError(
            f"{v.family.name}: expected {said}, which this model misses by {error:.2g} of the size of the terms (more "
            f"than the {allowed:.1g} of rounding): it adds something else than its row says, so no number would mean "
            "what its name says. Correct the row (register_family replaces one of the same name), or have one found: "
            "unsmooth.find_family(model, batch)"
        )
    return error
