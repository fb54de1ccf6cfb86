"""Direct against total effect: a part is taken out of the forward pass, and the model runs again.

A share is what a part adds where it adds it. Later layers answer to what they are given, so the ratio at the end
without the part may differ by another amount, or in the other direction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from unsmooth.analysis.attention_listener import counted_tokens, head_matrices, mean_token
from unsmooth.analysis.attributing.attribution import Attribution
from unsmooth.analysis.attributing.attributor import Attributor
from unsmooth.analysis.attributing.shares import KINDS, NEARLY_ALL, Part, parts_of
from unsmooth.analysis.policies import token_mask
from unsmooth.errors import FeatureError, ForwardError, OptionError, WeightsError
from unsmooth.metrics.moments import Moments
from unsmooth.models import capture_attention, hook_points, replace_points
from unsmooth.models.forward import call, evaluating, to_model
from unsmooth.theory.divisia import Mask, State

Asked = tuple[Part, float, int | None]  # a part, its share, and the one token that it is taken from
AT_ONCE = 6  # parts whose layers' attention matrices are kept at a time
MODES = {
    "zero": "the part is left out",
    "mean": "every token gets the part's mean over the tokens of its input",
}


def total_effects(
    attributor: Attributor,
    found: Attribution,
    batches: Iterable[Any],
    count: int,
    mode: str = "zero",
    merged: Callable[[list[Moments]], list[Moments]] = list,
) -> list[dict[str, Any]]:
    """The strongest parts with their direct shares, and what the end of the stream loses without them.

    One forward pass a part and batch (`affordable` says how many batches), and one for every few parts as it is. A
    normalisation of the stream cannot be taken out and is passed over. Where other processes have other batches,
    `merged` adds what they found.
    """
    if mode not in MODES:
        raise OptionError.unknown("way to remove a part", mode, MODES)
    policy = next((p for p in found.policies if p != "no-outliers"), None)
    if policy is None:
        found.notes.append("no total effects: which tokens are outliers changes without a part; take `all` tokens too")
        return []
    frame = found.strongest(None, policy)
    frame = frame[~frame["kind"].isin(["norm1", "norm2"])]
    rows = frame.head(count).to_dict("records")
    asked = [asked for part, row in zip(parts_of(rows), rows, strict=True)
             for asked in ((part, float(row["mean"]), None), *_at_one_token(found, part, policy))]  # fmt: skip
    effects = [Moments() for _ in asked]
    refused: list[str] = []
    most, attributor.most = attributor.most, None  # every input of these batches counts
    for batch in batches:
        refused += _take_out(attributor, batch, policy, mode, asked, effects)
    attributor.most = most
    found.notes.extend(f"no total effect: {said}" for said in sorted(set(refused)))
    return [
        {"layer": part.layer, "kind": part.kind, "head": part.head, "position": place, "tokens": policy, "mode": mode,
         "part": part.name if place is None else f"{part.name} at position {place}",
         "direct": direct, "total": moments.mean, "std": moments.std if moments.count > 1 else None,
         "inputs": moments.count}
        for (part, direct, place), moments in zip(asked, merged(effects), strict=True)
        if moments.count
    ]  # fmt: skip


def _take_out(
    attributor: Attributor, batch: Any, policy: str, mode: str, asked: Sequence[Asked], effects: Sequence[Moments]
) -> list[str]:
    """Add what the end of this batch's stream loses without each part; returns why a part could not be taken out."""
    refused = []
    padded = attributor.tokens_of(to_model(batch, attributor.view.model)).mask is not None
    for start in range(0, len(asked), AT_ONCE):
        some = asked[start : start + AT_ONCE]
        layers = sorted({part.layer for part, _, _ in some if part.kind != "mlp"})
        whole, given = _as_it_is(attributor, batch, policy, layers)
        for (part, _, place), moments in zip(some, effects[start:], strict=False):
            if place is not None and padded:
                continue  # positions count tokens, not padding
            try:
                with removed(attributor, part, batch, mode, place, given.get(part.layer)):
                    lost = whole - end_ratio(attributor, batch, policy)
            except (FeatureError, ForwardError, WeightsError) as error:  # which costs a total, not the shares
                refused.append(str(error))
            else:
                moments.update(lost[lost.isfinite()])
    return refused


def _at_one_token(found: Attribution, part: Part, policy: str) -> Iterator[tuple[Part, float, int]]:
    """Where one token has nearly all of an MLP's share (it writes an outlier), also what it writes there alone."""
    if part.kind != "mlp":
        return
    shares = found.positions[policy][:, part.layer, KINDS.index(part.kind)].astype(float)
    place = int(np.abs(shares).argmax())
    if len(shares) > 1 and shares[place] / shares.sum() >= NEARLY_ALL:
        yield part, float(shares[place]), place


def end_ratio(attributor: Attributor, batch: Any, policy: str = "all") -> Float[Tensor, " batch"]:
    """ln HFC/LFC of every input after the last block."""
    return _as_it_is(attributor, batch, policy, [])[0]


def _as_it_is(
    attributor: Attributor, batch: Any, policy: str, layers: Sequence[int]
) -> tuple[Float[Tensor, " batch"], dict[int, dict[str, Any]]]:
    """The same, and what these layers are given and how they attend to it: what their parts write follows from that.

    It does not change without one of them, and some models (ALBERT) show attention matrices only after what they made
    was added, too late for a pass that goes without it.
    """
    v = attributor.view
    inputs = to_model(batch, v.model)
    tokens, last, found = attributor.tokens_of(inputs), len(v.layers) - 1, []
    given: dict[int, dict[str, Any]] = {layer: {} for layer in layers}
    starts = {f"blocks.{layer}.pre": layer for layer in layers}

    def see(point: str, x: Tensor) -> None:
        if point in starts:
            given[starts[point]]["pre"] = x.clone()
            return
        kept = counted_tokens(policy, [tokens.kept(x, last), token_mask(policy, x, tokens.kinds)], x, last)
        found.append(State.of(x, kept).ratio.cpu())

    def attended(layer: int, a: Any) -> None:
        given[layer]["attention"] = head_matrices(a)

    with ExitStack() as stack:
        stack.enter_context(evaluating(v.model))
        if layers:
            in_parts = attributor.in_parts(inputs)
            stack.enter_context(capture_attention(v, attended, list(layers), in_parts=in_parts))
        stack.enter_context(hook_points(v, [*starts, f"blocks.{last}.post"], see))
        call(v.model, inputs)
    return found[0], given


@contextmanager
def removed(
    attributor: Attributor,
    part: Part,
    batch: Any,
    mode: str = "zero",
    only: Mask | int = None,
    given: dict[str, Any] | None = None,
) -> Iterator[None]:
    """Forward passes on this batch without a part; with `only`, without what it writes to these tokens.

    They are the position of one token, or a mask; inputs of the batch beyond the mask's stay as they are. `given` is
    what a head's or mean path's layer is given (`_as_it_is`), which takes a pass of its own where it is not known.
    """
    v = attributor.view
    point = f"blocks.{part.layer}.{'mlp' if part.kind == 'mlp' else 'attn'}"
    tokens = attributor.tokens_of(to_model(batch, v.model))
    if given is None:
        given = {} if part.kind == "mlp" else _as_it_is(attributor, batch, "all", [part.layer])[1][part.layer]

    def replace(_: str, x: Tensor) -> Tensor:
        mask = tokens.kept(x, part.layer)
        taken = x if part.kind == "mlp" else attributor.written(part, x, **given, mask=mask)
        left = mean_token(taken, mask)[:, None].expand_as(taken) if mode == "mean" else torch.zeros_like(taken)
        if only is None:
            return x - taken + left
        new = x.clone()
        if isinstance(only, int):
            new[:, only] = (x - taken + left)[:, only]
        else:
            chosen = only.to(x.device)
            new[: len(chosen)][chosen] = (x - taken + left)[: len(chosen)][chosen]
        return new

    with replace_points(v, [point], replace):
        yield
