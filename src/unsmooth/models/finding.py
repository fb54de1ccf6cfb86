"""A row for a model of one's own, found by numbers: which module's output, added to which state, gives the next."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import combinations, permutations
from typing import Any

import torch
from torch import Tensor, nn

from unsmooth.errors import PointError, UnknownModelError, first_line
from unsmooth.models.family import Family, Placement
from unsmooth.models.finding_attention import Branch, find_attention, scales
from unsmooth.models.finding_blocks import Block, Stack, repeated, stacks
from unsmooth.models.finding_proofs import Interventions, misplaced, told_apart
from unsmooth.models.forward import to_model
from unsmooth.models.inputs import main_input
from unsmooth.models.sums import check_sums
from unsmooth.models.taps import Tap, Taps
from unsmooth.models.trace import Call, same, trace, within
from unsmooth.models.view import is_called, module_of, view_as
from unsmooth.models.weights import norm_kind

_SUMS: dict[Placement, str] = {
    "pre": "states are x + attn(norm(x)) and x + mlp(norm(x))",
    "post": "states are norm(x + attn(x)) and norm(x + mlp(x))",
    "parallel": "the state is x + attn(norm(x)) + mlp(norm(x))",
    "parallel-shared": "the state is x + attn(norm(x)) + mlp(norm(x)) with one norm",
}
Sums = tuple[Placement, dict[str, Taps], Branch]


def find_family(model: nn.Module, batch: Any, name: str = "found") -> Family:
    """Find the row that describes this model by running it on a small batch; every part of the row is checked there.

    The blocks must be in a `ModuleList` or `Sequential` (a block may also be a list of its parts). Supported are
    pre-norm blocks (x + attn(norm(x)), then x + mlp(norm(x))), post-norm blocks (norms after the sums) and parallel
    blocks (x + attn(norm(x)) + mlp(norm(x))). If no weights and matrices reproduce the attention, or its norm is
    elsewhere in some blocks, the row leaves the attention out: the model can then be measured, but not explained. Pass
    the row to `register_family`.

    >>> class Mine(nn.Sequential): ...
    >>> blocks = [nn.TransformerEncoderLayer(8, 2, 16, batch_first=True) for _ in range(2)]
    >>> row = find_family(Mine(*blocks), torch.randn(2, 5, 8))
    >>> row.placement, row.attention.module
    ('post', 'self_attn')
    """
    model = module_of(model)
    if type(model).__module__.startswith("torch."):
        raise UnknownModelError(
            f"{type(model).__name__} is a class of torch, of which many models are made, so no row can stand for it: "
            "give the model a class of its own (class Mine(nn.Module))"
        )
    with told_apart(model):
        return _find(model, batch, name)


def _find(model: nn.Module, batch: Any, name: str) -> Family:
    calls = trace(model, batch)
    ran = list(stacks(model, calls))
    found = [(stack, sums) for stack in ran if (sums := list(_sums(stack.last)))]
    if len(found) != 1:
        raise UnknownModelError(_why_several(model, found) if found else _why_none(model, ran, repeated(model, calls)))
    stack, every = found[0]
    if len(kinds := stack.kinds()) > 1:
        raise UnknownModelError(_why_two_kinds(model, *kinds))
    for some in every:
        row = _row(name, model, calls, stack, some)
        _check_every_block(model, row, batch, stack)
        row = find_attention(model, row, some[2], batch)
        v = view_as(model, model, row)
        if (tokens := stack.first.pre.shape[1 if v.batch_first else 0]) < 2:  # every matrix of one token is causal
            raise UnknownModelError(f"the blocks of {type(model).__name__} were given {tokens} token: give two or more")
        told = Interventions(v, batch)
        if told.is_parallel() if row.placement.startswith("parallel") else "attn" in told.mixing():
            row = _without(row, misplaced(v, batch))
            return replace(row, prefix=_constant_tokens(model, batch, row, stack.first))
    raise UnknownModelError(_why_unproven(model, stack, every[0][0]))


def _without(row: Family, wrong: set[str]) -> Family:
    """The row without norms that stand elsewhere in some layer, and without an attention whose norm is not there."""
    points = {point: taps for point, taps in row.points.items() if point not in wrong}
    return replace(row, points=points, attention=None if wrong - {"norm2"} else row.attention)


def _check_every_block(model: nn.Module, row: Family, batch: Any, stack: Stack) -> None:
    try:
        check_sums(view_as(model, model, row), batch)
    except (PointError, UnknownModelError) as error:  # sums that differ, modules that some blocks lack
        sums = re.search(r"blocks\.\d[^,=]* = [^ ,]+", str(error))
        lacks = re.search(r"which (layer \d+ \(\w+\)) does not have", str(error))
        seen = f"{sums[0]} does not hold" if sums else f"{lacks[1]} lacks a part of it" if lacks else first_line(error)
        raise UnknownModelError(
            f"no row can be found for {type(model).__name__}: its blocks differ. In the last, {stack.last.path} "
            f"({type(stack.last.module).__name__}), {_SUMS[row.placement]}; elsewhere not so ({seen}). If all are "
            "pre-norm or all are post-norm, make attention and MLP, with the norms that only some blocks have, modules "
            "of their own"
        ) from error


def _row(name: str, model: nn.Module, calls: list[Call], stack: Stack, sums: Sums) -> Family:
    return Family(
        name,
        (type(model),),
        blocks=stack.path,
        placement=sums[0],
        block_classes=stack.classes,
        points=sums[1],
        embed=_embedding(calls, stack.path, stack.first.pre),
        final_norm=_final_norm(calls, stack.last.post),
        width=_width(model, stack.first.pre.shape[-1]),
    )


def _sums(b: Block) -> list[Sums]:
    """What the block may be: the likely first, and of parallel sums every assignment of names."""
    found = _pre_norm(b) or _post_norm(b)
    return list(_parallel(b)) if found is None else [found]


def _pre_norm(b: Block) -> Sums | None:
    """x + attn(norm(x)), x + mlp(norm(x)): what goes into a module is the state between the sums."""
    for m in b.calls:
        if m.given is None or m.given.shape != b.pre.shape or same(m.given, b.pre) or same(m.given, b.post):
            continue
        attn, mlp = _addend(b, b.pre, m.given), _addend(b, m.given, b.post)
        if attn is None or mlp is None:
            continue
        points: dict[str, Taps] = {"attn": attn[0], "mid": m.tap("in"), "mlp": mlp[0], **b.ends(m.path, mlp[0])}
        norms = [next((c for c in b.calls if norm_kind(c.module) and same(c.given, x)), None) for x in (b.pre, m.given)]
        points |= {point: c.tap("out") for point, c in zip(("norm1", "norm2"), norms, strict=True) if c is not None}
        start = b.pre if norms[0] is None or norms[0].gave[0] is None else norms[0].gave[0]
        return "pre", points, Branch(b.module, b.calls, start, attn[1], norms[0])
    return None


def _post_norm(b: Block) -> Sums | None:
    """norm(x + attn(x)), norm(x + mlp(x)): what goes into the norms are the sums."""
    norms = [c for c in b.calls if norm_kind(c.module) and c.given is not None]
    for first in norms:
        attn = _addend(b, b.pre, first.given)
        for second in norms if attn is not None else ():
            mlp = _addend(b, first.gave[0], second.given)
            if attn is not None and mlp is not None and second is not first and same(second.gave[0], b.post):
                points: dict[str, Taps] = {
                    "attn": attn[0], "attn_sum": first.tap("in"), "mid": first.tap("out"),
                    "mlp": mlp[0], "mlp_sum": second.tap("in"), **b.ends("", mlp[0]),
                }  # fmt: skip
                return "post", points, Branch(b.module, b.calls, b.pre, attn[1], post_norm=first)
    return None


def _parallel(b: Block) -> Iterator[Sums]:
    """x + attn(norm(x)) + mlp(norm(x)): which is which, and whose norm a norm is, is proven afterwards."""
    if not is_called(b.module):
        return
    given = [(c, x) for c in reversed(b.calls) if (x := c.gave[0]) is not None and x.shape == b.pre.shape]
    pair = next((p for p in combinations(given, 2) if same(b.pre + p[0][1] + p[1][1], b.post)), ())
    norms = [(c, y) for c in b.calls if norm_kind(c.module) and same(c.given, b.pre) and (y := c.gave[0]) is not None]
    for (attn, added), (mlp, _) in permutations(pair, 2):
        for order in permutations(norms, min(len(norms), 2)):
            norm, start = order[0] if order else (None, b.pre)
            points: dict[str, Taps] = {"attn": attn.tap("out"), "mlp": mlp.tap("out"), **b.ends("", mlp.tap("out"))}
            points |= {point: c.tap("out") for point, (c, _) in zip(("norm1", "norm2"), order, strict=False)}
            placement: Placement = "parallel-shared" if len(order) == 1 else "parallel"
            yield placement, points, Branch(b.module, b.calls, start, added, norm)


def _addend(b: Block, before: Tensor | None, after: Tensor | None) -> tuple[Tap, Tensor] | None:
    """The last output that leads from one state to the next, alone or times a parameter of the block (LayerScale)."""
    if before is None or after is None:
        return None
    given = [c for c in reversed(b.calls) if c.gave[0] is not None and c.gave[0].shape == before.shape]
    for c in given:
        if (x := c.gave[0]) is not None and same(before + x, after):
            return c.tap("out"), x
    for c in given:
        for name, scale in scales(b.module, before.shape[-1]):
            if (x := c.gave[0]) is not None and same(before + x * scale, after):
                return replace(c.tap("out"), times=name), x * scale
    return None


def _embedding(calls: list[Call], blocks: str, pre: Tensor) -> Taps:
    """The last module before the blocks that gives what enters them."""
    for c in reversed(within(calls)):
        if c.of == 1 and not c.path.startswith(f"{blocks}.") and same(c.gave[0], pre):
            return c.tap("out")
    return ()


def _final_norm(calls: list[Call], post: Tensor) -> Taps:
    found = (c for c in within(calls) if c.of == 1 and norm_kind(c.module) and same(c.given, post))
    return next((c.tap("out") for c in reversed(list(found))), ())


def _width(model: nn.Module, width: int) -> str:
    """Where a number says how many features a token has."""
    for path, module in model.named_modules():
        for key, value in vars(module).items():
            if type(value) is int and value == width:
                return f"{path}.{key}".lstrip(".")
    return ""


def _constant_tokens(model: nn.Module, batch: Any, row: Family, block: Block) -> tuple[int, ...]:
    """How many first tokens are the same whatever the picture: class tokens and registers, no patches."""
    inputs = main_input(to_model(batch, model))
    pictures = inputs.get("pixel_values") if isinstance(inputs, Mapping) else inputs
    beside_text = isinstance(inputs, Mapping) and "input_ids" in inputs
    if not isinstance(pictures, Tensor) or pictures.dim() < 4 or beside_text:
        return ()
    noise = torch.randn_like(pictures)
    calls = trace(model, {**inputs, "pixel_values": noise} if isinstance(inputs, Mapping) else noise)
    other = next((c.given for c in calls if c.path == block.entered), None)
    if other is None or other.shape != block.pre.shape or not view_as(model, model, row).batch_first:
        return ()
    constant = int((other - block.pre).abs().amax((0, 2)).gt(0).int().argmax())
    return (constant,) if constant else ()


def _why_none(model: nn.Module, ran: list[Stack], again: str) -> str:
    name = type(model).__name__
    if again and not ran:
        return (
            f"no row can be found for {name}: the modules of {again} run several times in one forward pass. Describe "
            "them with a row whose `passes` names the attribute that counts the passes (docs/families.md)"
        )
    seen = ", ".join(f"{stack.path or 'itself'} ({type(stack.last.module).__name__})" for stack in ran)
    return (
        f"no row can be found for {name}: expected blocks in a ModuleList or Sequential, each of which is called once "
        "and adds to its input what attention gives and what an MLP gives, one after the other or both at once; "
        + (f"no two outputs of modules add up so in {seen}" if seen else "no list of modules runs so")
        + ". Attention and MLP must each be a module of their own, and of the state between them a module must be "
        "given, such as its norm (docs/families.md)"
    )


def _why_unproven(model: nn.Module, stack: Stack, placement: Placement) -> str:
    start = f"no row can be found for {type(model).__name__}: in {stack.path} ({type(stack.last.module).__name__}) "
    if placement.startswith("parallel"):
        return start + (
            "two outputs add up to the next state, but not as x + attn(norm(x)) + mlp(norm(x)): if the MLP works on "
            "x + attn(norm(x)), call its norm as a module of its own, so that this state can be seen"
        )
    return start + (
        "what is added first takes nothing from other tokens: expected attention first, then the MLP, and tokens on "
        "the axis before the features"
    )


def _why_two_kinds(model: nn.Module, attends: Block, other: Block) -> str:
    return (
        f"no row can be found for {type(model).__name__}: its blocks are of several kinds. {attends.path} "
        f"({type(attends.module).__name__}) forms attention matrices over all tokens, {other.path} "
        f"({type(other.module).__name__}) does not: it mixes tokens by something else (a convolution, a recurrence, "
        "attention within windows), and its part would be called attention. Take a model whose layers are all alike"
    )


def _why_several(model: nn.Module, found: list[tuple[Stack, list[Sums]]]) -> str:
    listed = ", ".join(f"{stack.path} ({type(stack.last.module).__name__})" for stack, _ in found)
    return (
        f"{type(model).__name__} holds {len(found)} stacks of blocks: {listed}. Expected one: give the part that holds "
        "the one to look at, and its own inputs"
    )
