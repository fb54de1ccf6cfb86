"""A row for a model of one's own, found by numbers: which module's output, added to which state, gives the next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from unsmooth.errors import UnknownModelError
from unsmooth.models.family import Family, Placement
from unsmooth.models.finding_attention import Branch, find_attention, scales
from unsmooth.models.forward import main_input, to_model
from unsmooth.models.sums import check_sums
from unsmooth.models.taps import Tap, Taps
from unsmooth.models.trace import Call, same, trace, within
from unsmooth.models.view import view_as
from unsmooth.models.weights import norm_kind
from unsmooth.models.wrappers import unwrapped


@dataclass(frozen=True, eq=False)
class Block:
    """One block's calls, with paths below it."""

    path: str
    module: nn.Module
    pre: Tensor
    post: Tensor
    calls: list[Call]


@dataclass(frozen=True, eq=False)
class Stack:
    """A list of blocks, each of which gives features of the shape that it is given. The last one has every norm."""

    path: str
    first: Block
    last: Block


Sums = tuple[Placement, dict[str, Taps], Branch]


def find_family(model: nn.Module, batch: Any, name: str = "found") -> Family:
    """A row that describes this model, found by running it on a (small) batch; every part of it is checked there.

    The blocks must stand in a `ModuleList` or `Sequential`, and be x + attn(norm(x)), x + mlp(norm(x)), or both with
    the norms behind the sums. Where no weights and matrices reproduce the attention, the row leaves it out: the model
    can then be measured, not explained. Give the row to `register_family`.

    >>> class Mine(nn.Sequential): ...
    >>> blocks = [nn.TransformerEncoderLayer(8, 2, 16, batch_first=True) for _ in range(2)]
    >>> row = find_family(Mine(*blocks), torch.randn(2, 5, 8))
    >>> row.placement, row.attention.module
    ('post', 'self_attn')
    """
    model = unwrapped(model)
    if type(model).__module__.startswith("torch."):
        raise UnknownModelError(
            f"{type(model).__name__} is a class of torch, of which many models are made, so no row can stand for it: "
            "give the model a class of its own (class Mine(nn.Module))"
        )
    calls = trace(model, batch)
    stacks = list(_stacks(model, calls))
    found = [(stack, sums) for stack in stacks if (sums := _pre_norm(stack.last) or _post_norm(stack.last))]
    if len(found) != 1:
        raise UnknownModelError(_why_none(model, stacks) if not found else _why_several(model, found))
    stack, (placement, points, branch) = found[0]
    row = Family(
        name,
        (type(model),),
        blocks=stack.path,
        placement=placement,
        points=points,
        embed=_embedding(calls, stack.path, stack.first.pre),
        final_norm=_final_norm(calls, stack.last.post),
        width=_width(model, stack.first.pre.shape[-1]),
    )
    row = find_attention(model, row, branch, batch)
    v = view_as(model, model, row)
    check_sums(v, batch)
    if (tokens := stack.first.pre.shape[1 if v.batch_first else 0]) < 2:  # every matrix of one token is causal
        raise UnknownModelError(f"the blocks of {type(model).__name__} were given {tokens} token: give two or more")
    return replace(row, prefix=_constant_tokens(model, batch, row, stack.first))


def _stacks(model: nn.Module, calls: list[Call]) -> Iterator[Stack]:
    """Lists whose entries each run once and lead from features to features of that shape."""
    once = {c.path: c for c in within(calls) if c.of == 1}
    for path, part in model.named_modules():
        if not isinstance(part, nn.ModuleList | nn.Sequential):
            continue
        run = [once.get(f"{path}.{name}".lstrip(".")) for name, _ in part.named_children()]
        blocks = [
            Block(c.path, c.module, c.given, c.gave[0], within(calls, c.path))
            for c in run
            if c is not None and c.given is not None and c.gave[0] is not None and c.given.dim() == 3
        ]
        if blocks and len(blocks) == len(run) and len({x.shape for b in blocks for x in (b.pre, b.post)}) == 1:
            yield Stack(path, blocks[0], blocks[-1])


def _pre_norm(b: Block) -> Sums | None:
    """x + attn(norm(x)), x + mlp(norm(x)): what goes into a module is the state between the sums."""
    for m in b.calls:
        if m.given is None or m.given.shape != b.pre.shape or same(m.given, b.pre) or same(m.given, b.post):
            continue
        attn, mlp = _addend(b, b.pre, m.given), _addend(b, m.given, b.post)
        if attn is None or mlp is None:
            continue
        points: dict[str, Taps] = {"attn": attn[0], "mid": m.tap("in"), "mlp": mlp[0]}
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
                    "mlp": mlp[0], "mlp_sum": second.tap("in"),
                }  # fmt: skip
                return "post", points, Branch(b.module, b.calls, b.pre, attn[1], post_norm=first)
    return None


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
    other = next((c.given for c in calls if c.path == block.path), None)
    if other is None or other.shape != block.pre.shape or not view_as(model, model, row).batch_first:
        return ()
    constant = int((other - block.pre).abs().amax((0, 2)).gt(0).int().argmax())
    return (constant,) if constant else ()


def _why_none(model: nn.Module, stacks: list[Stack]) -> str:
    seen = ", ".join(f"{stack.path or 'itself'} ({type(stack.last.module).__name__})" for stack in stacks)
    return (
        f"no row can be found for {type(model).__name__}: expected blocks in a ModuleList or Sequential, each of which "
        "is called once and adds to its input first what attention gives and then what an MLP gives; "
        + (f"no two outputs of modules add up so in {seen}" if seen else "no list of modules runs so")
        + ". Attention and MLP must each be a module of their own (docs/families.md)"
    )


def _why_several(model: nn.Module, found: list[tuple[Stack, Sums]]) -> str:
    listed = ", ".join(f"{stack.path} ({type(stack.last.module).__name__})" for stack, _ in found)
    return (
        f"{type(model).__name__} holds {len(found)} stacks of blocks: {listed}. Expected one: give the part that holds "
        "the one to look at, and its own inputs"
    )
